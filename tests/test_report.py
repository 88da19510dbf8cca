"""The report: counts from the ledger, times from the sessions, nothing rewritten for nothing."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.sinks.fake_run import CARD, content, failure, manifest, plan, record, utterance
from ttsbatch.cli.app import app
from ttsbatch.errors import SinkError
from ttsbatch.report import Meter, RunReport, finish_report, load_report
from ttsbatch.report_views import key_figures, markdown, summary_table
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.types import EngineStats, Utterance

ROWS = [utterance(f"r{i}") for i in range(6)]


def session(
    out: Path, rows: list[Utterance], stop_after: int = 99, failed: int = 0, die: bool = False
) -> RunReport:
    meter = Meter()
    stats = EngineStats(num_slots=4, num_steps=10, busy_slot_steps=30, total_slot_steps=40)
    stats.devices.append("cpu")
    stats.kernel_fallbacks["codec vocoder"] = 2
    stats.add_seconds("load", 3.0)
    stats.add_seconds("decode", 0.5)
    with ShardSink(out, plan(), CARD, group_seconds=0.01) as sink:
        sink.reject([failure(90), failure(91)])
        todo = []
        for u in rows:
            meter.count_row(done := sink.is_finished(u))
            if not done:
                todo.append(u)
        meter.num_valid += failed
        meter.begin_speaking()
        for u in todo[:stop_after]:
            meter.begin_row(u.id)
            made = record(sink, u)
            sink.write(made, meter.add(made))
        for i in range(failed):
            sink.fail(failure(50 + i, "engine_error", "engine"))
        if die:
            sink.flush()
            os._exit(9)
        return finish_report(sink, meter, stats, "finished")


def test_what_ran_without_kernels_is_added_up_and_shown(tmp_path: Path) -> None:
    session(tmp_path, ROWS, stop_after=2)
    report = session(tmp_path, ROWS).values
    assert report["kernel_fallbacks"] == {"codec vocoder": 4}
    assert dict(key_figures(report))["without kernels"] == "codec vocoder 4"


def test_report_counts_agree_with_the_files(tmp_path: Path) -> None:
    report = session(tmp_path, ROWS, failed=1).values
    lines = manifest(tmp_path)
    assert report["utterances"] == {"in": 9, "made": 6, "rejected": 2, "failed": 1, "flagged": 0}
    assert report["audio_seconds"] == pytest.approx(sum(m["duration"] for m in lines))
    assert report["rtf"] == pytest.approx(report["wall_seconds"] / report["audio_seconds"])
    assert report["rtf"] * report["audio_seconds_per_second"] == pytest.approx(1)
    assert report["load_seconds"] == 3.0
    assert report["finish_reasons"] == {"stop": 6, "length": 0}
    assert report["slots"] == {"count": 4, "mean_busy": 3.0, "busy_share": 0.75}
    assert set(report["stages"]) == {"prepare", "prefill", "decode", "codec", "encode", "write"}
    assert report["stages"]["decode"]["busy_seconds"] == 0.5
    assert report["stages"]["write"]["busy_seconds"] > 0
    buckets = report["length_buckets"].values()
    assert sum(b["utterances"] for b in buckets) == 6
    assert sum(b["wall_seconds"] for b in buckets) <= report["wall_seconds"]
    assert report["devices"]["cpu"]["audio_seconds"] == pytest.approx(report["audio_seconds"])
    assert report["peak_memory"]["host_bytes"] > 10 << 20
    assert report == load_report(tmp_path).values == json.loads(RunReport(report).to_json())


def test_totals_cover_all_sessions(tmp_path: Path) -> None:
    first = session(tmp_path, ROWS, stop_after=2).values
    both = session(tmp_path, ROWS).values
    assert both["utterances"]["made"] == 6
    assert [s["made"] for s in both["sessions"]] == [2, 4]
    assert [s["number"] for s in both["sessions"]] == [1, 2]
    assert both["audio_seconds"] == pytest.approx(sum(m["duration"] for m in manifest(tmp_path)))
    assert both["wall_seconds"] > first["wall_seconds"]
    assert both["load_seconds"] == 6.0


def test_rerun_with_nothing_to_do_leaves_the_report_alone(tmp_path: Path) -> None:
    many = [utterance(f"m{i}") for i in range(300)]  # enough for sums to differ in their order
    session(tmp_path, many, stop_after=999)
    before = content(tmp_path)
    assert session(tmp_path, many).values["utterances"]["made"] == 300
    assert content(tmp_path) == before
    fewer = session(tmp_path, many[:3]).values
    assert fewer["utterances"]["in"] == 5
    assert len(fewer["sessions"]) == 1


def test_rows_outside_a_smaller_corpus_are_counted_apart(tmp_path: Path) -> None:
    def flag_all_but_first(sink: ShardSink, rows: list[Utterance]) -> None:
        for u in rows:
            is_good = u is ROWS[0]
            checks = {"verdict": "pass" if is_good else "flag", "reasons": []}
            sink.write(replace(record(sink, u), checks=checks))

    with ShardSink(tmp_path, plan(), CARD) as sink:
        sink.reject([])
        flag_all_but_first(sink, ROWS)
        meter = Meter()
        meter.num_valid = len(ROWS)
        full = finish_report(sink, meter, EngineStats(), "finished").values
    assert (full["utterances"]["flagged"], full["outside_corpus"]["made"]) == (5, 0)
    assert "other rows" not in dict(key_figures(full))
    with ShardSink(tmp_path, plan(), CARD) as sink:
        sink.reject([])
        meter = Meter()
        for u in ROWS[:2]:
            meter.count_row(sink.is_finished(u), sink.is_flagged(u.id))
        fewer = finish_report(sink, meter, EngineStats(), "finished").values
    assert fewer["utterances"] == {"in": 2, "made": 2, "rejected": 0, "failed": 0, "flagged": 1}
    assert fewer["outside_corpus"] == {"made": 4, "flagged": 4}
    assert fewer["finish_reasons"]["stop"] == 2 + 4
    shown = dict(key_figures(fewer))
    assert shown["other rows"].startswith("4 made rows")
    assert shown["flagged"].startswith("5")
    assert "| other rows | 4 made rows" in (tmp_path / "report.md").read_text("utf8")


def test_speed_is_that_of_all_audio_that_was_spoken(tmp_path: Path) -> None:
    first = session(tmp_path, ROWS).values
    edited = [utterance("r0", "a longer text of r0"), *ROWS[1:]]
    both = session(tmp_path, edited).values
    gone_s = first["audio_seconds"] - sum(m["duration"] for m in manifest(tmp_path)[:-1])
    assert first["replaced_audio_seconds"] == 0
    assert both["replaced_audio_seconds"] == pytest.approx(gone_s, abs=1e-6)
    spoken_s = both["audio_seconds"] + both["replaced_audio_seconds"]
    in_sessions_s = sum(s["audio_seconds"] for s in both["sessions"])
    assert spoken_s == pytest.approx(in_sessions_s, abs=1e-6)
    assert both["rtf"] == pytest.approx(both["wall_seconds"] / spoken_s)
    assert both["devices"]["cpu"]["rtf"] == pytest.approx(both["rtf"], rel=0.01)
    assert both["stages"]["decode"]["audio_seconds"] == pytest.approx(spoken_s, abs=1e-6)
    spoken_chars = sum(len(u.spoken_text) for u in [*ROWS, edited[0]])
    assert both["chars_per_second"] == pytest.approx(spoken_chars / both["wall_seconds"])
    assert "replaced since" in dict(key_figures(both))["audio"]
    assert "replaced since" not in dict(key_figures(first))["audio"]


def test_killed_session_counts_with_the_time_of_its_last_row(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        session(tmp_path, ROWS, stop_after=3, die=True)
    os.waitpid(pid, 0)
    report = session(tmp_path, ROWS).values
    assert [(s["ended"], s["made"]) for s in report["sessions"]] == [("killed", 3), ("finished", 3)]
    assert report["sessions"][0]["wall_seconds"] > 0
    assert report["utterances"]["made"] == 6


def test_edited_row_counts_once(tmp_path: Path) -> None:
    session(tmp_path, ROWS)
    report = session(tmp_path, [utterance("r0", "a longer text of r0"), *ROWS[1:]]).values
    assert report["utterances"]["made"] == 6
    assert report["finish_reasons"]["stop"] == 6
    assert report["audio_seconds"] == pytest.approx(sum(m["duration"] for m in manifest(tmp_path)))


def test_flags_are_listed_by_check_and_a_replaced_row_counts_once(tmp_path: Path) -> None:
    def flagged(sink: ShardSink, u: Utterance, *reasons: str) -> None:
        checks = {"verdict": "flag", "reasons": reasons, "duration_s": 3.0, "expected_s": 2.0}
        sink.write(replace(record(sink, u), checks=checks))

    with ShardSink(tmp_path, plan(), CARD, group_seconds=0.01) as sink:
        flagged(sink, ROWS[0], "loop", "too_long")
        flagged(sink, ROWS[1], "loop")
        sink.write(record(sink, ROWS[2]))
        first = finish_report(sink, Meter(), EngineStats(), "finished").values
    assert first["flags"] == {"loop": 2, "too_long": 1}
    assert dict(key_figures(first))["flagged"] == "2 (loop 2, too_long 1)"
    assert "| loop | 2 |" in markdown(first)
    edited = replace(ROWS[1], spoken_text="Another text.")
    with ShardSink(tmp_path, plan(), CARD, group_seconds=0.01) as sink:
        flagged(sink, edited, "silent")
        second = finish_report(sink, Meter(), EngineStats(), "finished").values
    assert second["flags"] == {"loop": 1, "silent": 1, "too_long": 1}


def test_row_costs_add_up_to_the_wall_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("ttsbatch.report.time.perf_counter", lambda: clock[0])
    meter = Meter()
    with ShardSink(tmp_path, plan(), CARD) as sink:
        a, b = (record(sink, u) for u in ROWS[:2])
    meter.begin_speaking()
    meter.begin_row("r0")
    clock[0] = 2.0  # 2 s alone
    meter.begin_row("r1")
    clock[0] = 5.0  # 3 s shared
    first = meter.add(a)
    clock[0] = 9.0  # 4 s alone
    second = meter.add(b)
    assert (first.elapsed_s, first.cost_s) == (5.0, 3.5)
    assert (second.elapsed_s, second.cost_s) == (9.0, 5.5)
    assert meter.wall_s == 9.0


def test_views_show_the_key_figures(tmp_path: Path) -> None:
    values = session(tmp_path, ROWS).values
    text = markdown(values)
    assert text == (tmp_path / "report.md").read_text("utf8")
    assert "8 in = 6 made + 2 rejected + 0 failed" in text
    assert "| decode | 0.50 |" in text
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(summary_table(values))
    assert "6 made" in console.export_text()
    console.file.close()


def test_views_of_an_unfinished_run_name_the_rows_that_are_left(tmp_path: Path) -> None:
    meter = Meter()
    with ShardSink(tmp_path, plan(), CARD, group_seconds=0.01) as sink:
        sink.reject([failure(90)])
        meter.num_valid = 6
        meter.begin_speaking()
        sink.write(record(sink, ROWS[0]))
        values = finish_report(sink, meter, EngineStats(), "interrupted").values
    assert values["utterances"] == {"in": 7, "made": 1, "rejected": 1, "failed": 0, "flagged": 0}
    assert "7 in = 1 made + 1 rejected + 0 failed + 5 left |" in markdown(values)
    done = session(tmp_path, ROWS, failed=1).values
    counts = done["utterances"]
    assert counts["in"] == counts["made"] + counts["rejected"] + counts["failed"]
    assert "left" not in markdown(done)


def test_report_of_a_run_without_audio_has_no_rates(tmp_path: Path) -> None:
    report = session(tmp_path, []).values
    assert (report["rtf"], report["audio_seconds"]) == (None, 0)
    assert "RTF (wall / audio) | - |" in markdown(report)


def test_missing_and_damaged_reports_are_sink_errors(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no report"):
        load_report(tmp_path)
    (tmp_path / "report.json").write_text("[1]")
    with pytest.raises(SinkError, match="expected a report"):
        load_report(tmp_path)


def test_html_is_one_file_that_holds_every_figure_and_nothing_raw(
    tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    out = tmp_path / "<b>run"
    corpus = write_rows({"id": "a", "text": "One short row."})
    runner = CliRunner()
    assert runner.invoke(app, ["synth", str(corpus), "-o", str(out), "--quiet"]).exit_code == 0
    page = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(out), "--html", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text("utf8")
    assert "&lt;b&gt;run" in text
    assert "<b>" not in text
    for name, value in key_figures(load_report(out).values):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert not re.search(r"https?:|<script|<link|<img", text)
    refused = runner.invoke(app, ["report", str(out), "--html", str(tmp_path / "no" / "page.html")])
    assert refused.exit_code == 6
