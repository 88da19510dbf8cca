"""Meter and RunReport: how fast a run was, over all the sessions that it took.

Counts and audio seconds come from the ledger, so they hold whatever way a session ended; times
and busy slots come from the sessions themselves. A killed session leaves no times but that of
its last committed row. `report_views.py` shows a report.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ttsbatch.errors import SinkError
from ttsbatch.memory import peak_host_memory_bytes
from ttsbatch.quality.outliers import RunSurvey
from ttsbatch.sinks.jsonlines import dump_json
from ttsbatch.sinks.remote import name_of, read_top
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.sinks.totals import BUCKET_NAMES, Spent, Sum, Totals
from ttsbatch.types import EngineStats, ShardRecord

Ended = Literal["finished", "interrupted", "failed", "killed"]
STAGES = ("prepare", "prefill", "decode", "codec", "encode", "write")


class Meter:
    """Counts and clocks of one session; every method may be called from any thread.

    The wall time is shared out to the rows: at any moment equally to all rows in hand, so that a
    row's cost is what it kept the others from, and the costs add up to the time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._speaking_since: float | None = None
        self._spoken_s = 0.0
        self._shares_s = 0.0  # what a row in hand from the start to now would have cost
        self._shares_at_s = 0.0
        self._in_hand: dict[str, float] = {}
        self.num_valid = 0
        self.num_kept = 0
        self.num_kept_flagged = 0
        self.num_made = 0
        self.audio_s = 0.0
        self.num_chars = 0
        self.load_s = 0.0
        self.stage_seconds: dict[str, float] = {}

    def count_row(self, finished: bool, flagged: bool = False) -> None:
        """A valid row, in the checking pass; `finished`: made, and flagged, by earlier sessions."""
        with self._lock:
            self.num_valid += 1
            self.num_kept += finished
            self.num_kept_flagged += flagged

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add busy time of a stage that the pipeline itself runs."""
        with self._lock:
            self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + seconds

    def begin_speaking(self) -> None:
        """Start the wall clock: the model is loaded and warm."""
        with self._lock:
            self._speaking_since = time.perf_counter()

    def end_speaking(self) -> None:
        """Stop the wall clock; again: nothing."""
        with self._lock:
            self._spoken_s = self._elapsed()
            self._speaking_since = None

    def begin_row(self, utterance_id: str) -> None:
        """A row goes to the model."""
        with self._lock:
            self._share(self._elapsed())
            self._in_hand[utterance_id] = self._shares_s

    def drop_row(self, utterance_id: str) -> None:
        """A row in hand failed."""
        with self._lock:
            self._share(self._elapsed())
            self._in_hand.pop(utterance_id, None)

    def add(self, record: ShardRecord) -> Spent:
        """A row is made; returns what the sink keeps of its time."""
        with self._lock:
            now = self._elapsed()
            self._share(now)
            began = self._in_hand.pop(record.utterance.id, self._shares_s)
            self.num_made += 1
            self.audio_s += len(record.samples) / record.sample_rate_hz
            self.num_chars += len(record.utterance.spoken_text)
            return Spent(elapsed_s=now, cost_s=self._shares_s - began)

    @property
    def wall_s(self) -> float:
        """Seconds of speaking so far."""
        with self._lock:
            return self._elapsed()

    def _elapsed(self) -> float:
        if self._speaking_since is None:
            return self._spoken_s
        return self._spoken_s + time.perf_counter() - self._speaking_since

    def _share(self, now_s: float) -> None:
        if self._in_hand:
            self._shares_s += (now_s - self._shares_at_s) / len(self._in_hand)
        self._shares_at_s = now_s


@dataclass(frozen=True, slots=True)
class RunReport:
    """report.json as it stands."""

    values: dict[str, Any]

    @property
    def num_bad(self) -> int:
        """Rows that were not made."""
        counts = self.values["utterances"]
        return int(counts["rejected"] + counts["failed"])

    def to_json(self) -> str:
        """The text of report.json."""
        return dump_json(self.values, indent=2) + "\n"


def finish_report(
    sink: ShardSink,
    meter: Meter,
    stats: EngineStats,
    ended: Ended,
    whole_corpus: bool = True,
) -> RunReport:
    """Write report.json and report.md of an OUT, this session included; returns the report.

    Called once, before the sink is closed. A session that changed nothing leaves no trace: the
    files stay as they are, unless the corpus has other rows than last time.

    Args:
        sink: of the session.
        meter: of the session.
        stats: of its speaker.
        ended: how.
        whole_corpus: the session counted all rows of the corpus; else they are what they were,
            or as far as it counted if no session did before.

    Raises:
        SinkError: rows or files could not be written.
    """
    from ttsbatch.report_views import markdown

    meter.end_speaking()
    sink.flush()
    try:
        old = load_report(sink.out)
    except SinkError:
        old = None
    sessions = [] if old is None else list(old.values.get("sessions", []))
    is_counted = whole_corpus or (old is None and meter.num_valid > 0)
    utterances = _utterances(sink, meter) if is_counted else _as_before(sink, old)
    outside = {
        "made": max(0, sink.totals.all.utterances - utterances["made"]),
        "flagged": max(0, sink.totals.flagged - utterances["flagged"]),
    }
    killed = _killed_sessions(sink, sessions)
    # Sums over many rows differ in their last bits with the order, so totals decide nothing here.
    same_rows = old is not None and old.values["utterances"] == utterances
    if old is not None and same_rows and not killed and not sink.changed:
        return old
    sessions += killed
    if sink.changed:
        sink.note_session()
        sessions.append(_this_session(sink, meter, stats, ended))
    survey = RunSurvey()
    survey.add_lines(sink.live_lines())
    figures = build_report(sink.totals, utterances, outside, sessions)
    report = RunReport(figures | survey.result())
    sink.replace("report.md", markdown(report.values).encode("utf8"))
    sink.replace("report.json", report.to_json().encode("utf8"))
    return report


def load_report(out: Path | str) -> RunReport:
    """The report of an OUT, a folder or a URI.

    Raises:
        SinkError: there is none, or it is damaged.
    """
    path = f"{name_of(out)}/report.json"
    try:
        values = json.loads(read_top(out, "report.json"))
    except FileNotFoundError as e:
        raise SinkError(f"{path}: no report; expected the output of a finished run") from e
    except (OSError, ValueError) as e:
        raise SinkError(f"{path}: cannot read: {e}") from e
    if not isinstance(values, dict) or not isinstance(values.get("utterances"), dict):
        raise SinkError(f'{path}: has no "utterances"; expected a report of ttsbatch')
    return RunReport(values)


def _utterances(sink: ShardSink, meter: Meter) -> dict[str, int]:
    made = meter.num_kept + sink.num_written
    return {
        "in": meter.num_valid + sink.num_rejected,
        "made": made,
        "rejected": sink.num_rejected,
        "failed": sink.num_failed,
        "flagged": meter.num_kept_flagged + sink.num_flagged,
    }


def _as_before(sink: ShardSink, old: RunReport | None) -> dict[str, int]:
    """The counts of the last report, or of what OUT holds if it was killed before its first."""
    if old is not None:
        before: dict[str, int] = old.values["utterances"]
        outside = old.values.get("outside_corpus", {}).get("flagged", 0)
        flagged = min(max(0, sink.totals.flagged - outside), before["made"])
        return before | {"flagged": flagged}
    made = sink.totals.all.utterances
    rejected, failed = sink.listed_failures()
    return {
        "in": made + rejected + failed,
        "made": made,
        "rejected": rejected,
        "failed": failed,
        "flagged": sink.totals.flagged,
    }


def _this_session(
    sink: ShardSink, meter: Meter, stats: EngineStats, ended: Ended
) -> dict[str, Any]:
    mine = sink.totals.sessions[sink.session]
    stages: dict[str, float] = {}
    for part in (stats.stage_seconds, meter.stage_seconds, sink.stage_seconds):
        for name, seconds in part.items():
            stages[name] = stages.get(name, 0.0) + seconds
    return {
        "number": sink.session,
        "first_commit": _iso(mine.started),
        "ended": ended,
        "made": sink.num_written,
        "failed": sink.num_failed,
        "audio_seconds": mine.audio_s,
        "chars": mine.chars,
        "wall_seconds": meter.wall_s,
        "load_seconds": meter.load_s + stages.pop("load", 0.0),
        "warmup_seconds": stages.pop("warmup", 0.0),
        "stage_seconds": stages,
        "devices": list(stats.devices),
        "num_slots": stats.num_slots,
        "num_steps": stats.num_steps,
        "busy_slot_steps": stats.busy_slot_steps,
        "total_slot_steps": stats.total_slot_steps,
        "prefill_tokens": stats.prefill_tokens,
        "codec_graph_hits": stats.codec_graph_hits,
        "codec_graph_misses": stats.codec_graph_misses,
        "eager_steps": stats.eager_steps,
        "kernel_fallbacks": dict(stats.kernel_fallbacks),
        "peak_host_memory_bytes": peak_host_memory_bytes() + stats.peak_host_memory_bytes,
        "peak_device_memory_bytes": stats.peak_device_memory_bytes,
    }


def _killed_sessions(sink: ShardSink, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sessions that the ledger has rows of, and that did not live to report."""
    numbers = {s["number"] for s in known}
    return [
        {
            "number": number,
            "first_commit": _iso(s.started),
            "ended": "killed",
            "made": s.utterances,
            "audio_seconds": s.audio_s,
            "chars": s.chars,
            "wall_seconds": s.elapsed_s,
        }
        for number, s in sorted(sink.totals.sessions.items())
        if number not in numbers and number != sink.session
    ]


def build_report(
    totals: Totals,
    utterances: dict[str, int],
    outside: dict[str, int],
    sessions: list[dict[str, Any]],
) -> dict[str, Any]:
    """The values of report.json.

    Speed is that of all audio that the sessions spoke, replaced takes included: the wall time
    is that of all of it.

    Args:
        totals: of the rows that are made now.
        utterances: the counts of the corpus.
        outside: made and flagged rows of `totals` that are not among those.
        sessions: all of them.
    """
    audio_s = totals.all.audio_s
    # Less than a sample is none: sums in another order differ in their last bits.
    replaced_s = max(0.0, round(_total(sessions, "audio_seconds") - audio_s, 6))
    spoken_s = audio_s + replaced_s
    wall_s = _total(sessions, "wall_seconds")
    has_chars = all("chars" in s for s in sessions)  # not in an older report
    spoken_chars = _total(sessions, "chars") if has_chars else totals.all.chars
    timed = [s for s in sessions if "stage_seconds" in s]
    timed_audio_s = _total(timed, "audio_seconds")
    stages = {
        name: {
            "busy_seconds": (busy := sum(s["stage_seconds"].get(name, 0.0) for s in timed)),
            "audio_seconds": timed_audio_s,
            **_rates(busy, timed_audio_s),
        }
        for name in STAGES
    }
    steps = _total(timed, "num_steps")
    busy_steps, all_steps = _total(timed, "busy_slot_steps"), _total(timed, "total_slot_steps")
    return {
        "utterances": utterances,
        "outside_corpus": outside,
        "audio_seconds": audio_s,
        "replaced_audio_seconds": replaced_s,
        "wall_seconds": wall_s,
        **_rates(wall_s, spoken_s),
        "load_seconds": _total(sessions, "load_seconds"),
        "warmup_seconds": _total(sessions, "warmup_seconds"),
        "rtf_includes": "speaking only, replaced audio too; loading and warm-up are apart",
        "chars": totals.all.chars,
        "chars_per_second": spoken_chars / wall_s if wall_s > 0 else None,
        "attempts": totals.attempts,
        "finish_reasons": {
            "stop": totals.all.utterances - totals.ended_by_length,
            "length": totals.ended_by_length,
        },
        "stages": stages,
        "length_buckets": {
            name: _bucket(part) for name, part in zip(BUCKET_NAMES, totals.buckets, strict=True)
        },
        "devices": _devices(sessions),
        "slots": {
            "count": timed[-1]["num_slots"] if timed else 0,
            "mean_busy": busy_steps / steps if steps else 0.0,
            "busy_share": busy_steps / all_steps if all_steps else 0.0,
        },
        "codec_graphs": {
            "hits": _total(timed, "codec_graph_hits"),
            "misses": _total(timed, "codec_graph_misses"),
        },
        "eager_steps": _total(timed, "eager_steps"),
        "kernel_fallbacks": dict(
            sum((Counter(s.get("kernel_fallbacks")) for s in timed), Counter())
        ),
        "prefill_tokens": _total(timed, "prefill_tokens"),
        "peak_memory": {
            "host_bytes": max((s["peak_host_memory_bytes"] for s in timed), default=0),
            "device_bytes": max((s["peak_device_memory_bytes"] for s in timed), default=0),
        },
        "sessions": sessions,
    }


def _rates(seconds: float, audio_s: float) -> dict[str, float | None]:
    """Both ways to say how fast; None where a side is zero."""
    return {
        "rtf": seconds / audio_s if audio_s > 0 else None,
        "audio_seconds_per_second": audio_s / seconds if seconds > 0 else None,
    }


def _bucket(part: Sum) -> dict[str, Any]:
    return {
        "utterances": part.utterances,
        "audio_seconds": part.audio_s,
        "wall_seconds": part.cost_s,
        **_rates(part.cost_s, part.audio_s),
    }


def _devices(sessions: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Per device; a session on several devices counts under their names together."""
    devices: dict[str, dict[str, Any]] = {}
    for s in sessions:
        names = s.get("devices")
        if not names and not s["audio_seconds"]:
            continue  # it had no model to load
        name = "unknown" if not names else " + ".join(dict.fromkeys(names))
        one = devices.setdefault(name, {"count": 0, "audio_seconds": 0.0, "wall_seconds": 0.0})
        one["count"] = max(one["count"], len(names or [None]))
        one["audio_seconds"] += s["audio_seconds"]
        one["wall_seconds"] += s["wall_seconds"]
    for one in devices.values():
        one |= _rates(one["wall_seconds"], one["audio_seconds"])
    return devices


def _total(sessions: list[dict[str, Any]], name: str) -> Any:
    return sum(s.get(name, 0) for s in sessions)


def _iso(unix_time: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_time))
