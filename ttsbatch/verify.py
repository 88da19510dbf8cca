"""verify_run(): is everything of the input in OUT, each row once, and every file whole?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ttsbatch.corpus.open import STDIN, expand
from ttsbatch.corpus.scan import scan
from ttsbatch.errors import CorpusError, SinkError, TTSBatchError
from ttsbatch.models import open_card
from ttsbatch.plan import RunPlan
from ttsbatch.report import load_report
from ttsbatch.sinks.findings import DAMAGE, UNFINISHED, Findings
from ttsbatch.sinks.keys import content_key, settings_fingerprint
from ttsbatch.sinks.ledger import key_hash
from ttsbatch.sinks.remote import name_of, opened_for_reading, stale_manifest
from ttsbatch.sinks.verify import OutputCheck
from ttsbatch.types import Failure, Utterance
from ttsbatch.uri import is_uri


@dataclass(slots=True)
class Verification:
    """What `verify` found."""

    out: str
    num_made: int
    num_rejected: int
    num_failed: int
    findings: Findings
    num_in: int | None = None  # None: the input was not read, nor counted by the last run
    notes: list[str] = field(default_factory=list)  # what could not be checked, and why

    @property
    def num_damaged(self) -> int:
        """Findings that the output should never have."""
        return self.findings.count(DAMAGE)

    @property
    def num_unfinished(self) -> int:
        """Findings that another run of the same command sees to, or that are the input's."""
        return self.findings.count(UNFINISHED)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "out": self.out,
            "ok": not self.num_damaged and not self.num_unfinished,
            "utterances": {
                "in": self.num_in,
                "made": self.num_made,
                "rejected": self.num_rejected,
                "failed": self.num_failed,
                "missing": self.findings.count(["missing"]),
            },
            "findings": self.findings.to_json(),
            "notes": self.notes,
        }


def verify_run(out: Path | str) -> Verification:
    """Check an OUT, a folder or a URI, against itself and against the corpus of its run.json.

    Changes nothing.

    Raises:
        SinkError: not the output of a run, or its store does not answer.
    """
    with opened_for_reading(out if is_uri(str(out)) else Path(out).absolute()) as (folder, store):
        output = OutputCheck(folder, store)
        if store is not None and (problem := stale_manifest(store, folder)):
            kind = "leftover" if output.killed else "ledger"
            output.findings.add(kind, None, problem)
        return _verify(output, name_of(out))


def _verify(output: OutputCheck, name: str) -> Verification:
    failures = output.failures
    found = Verification(
        name, output.num_made, failures.num_rejected, len(failures.failed), output.findings
    )
    if output.in_use_by is not None:
        found.notes.append(
            f"a run is in progress ({output.in_use_by}); this is what it has committed so far"
        )
    elif output.killed:
        found.notes.append("the last session was killed; the same synth command resumes it")
    try:
        with _where_the_input_is(output.run):
            _InputCheck(output, found).run()
    except TTSBatchError as e:
        message = f"not compared with all of the input: {e}"
        output.findings.add("not_compared", None, message)
        _add_left(output)
    return found


@contextmanager
def _where_the_input_is(run: Mapping[str, Any]) -> Iterator[None]:
    """Be in the folder of the run where its relative names of a corpus say nothing here."""
    sources, folder = RunPlan.from_json(run.get("plan")).corpus.sources, run.get("folder")
    try:
        expand(sources)
    except CorpusError:
        if isinstance(folder, str) and Path(folder).is_dir():
            with chdir(folder):
                yield
            return
    yield


def _add_left(output: OutputCheck) -> dict[str, int] | None:
    """Add the rows that the last run left; returns its counts, or None where it has none."""
    try:
        counts = load_report(output.out).values["utterances"]
        kinds = ("in", "made", "rejected", "failed")
        num_in, made, rejected, failed = (int(counts[kind]) for kind in kinds)
    except (SinkError, KeyError, TypeError, ValueError):
        return None
    if output.killed:  # the report is of an earlier session
        return None
    if (left := num_in - made - rejected - failed) > 0:
        message = f"{left:,} of {num_in:,} rows are not made yet, by the report of the last run"
        output.findings.add("missing", None, message, left)
    return {"in": num_in, "made": made, "rejected": rejected, "failed": failed}


class _InputCheck:
    """The corpus as `synth` reads it, against what OUT has."""

    def __init__(self, output: OutputCheck, found: Verification) -> None:
        self._output, self._found, self._add = output, found, output.findings.add
        self._fingerprint = settings_fingerprint(output.run["settings"])
        self._rejected = Counter(output.failures.rejected)
        self._failed = dict(output.failures.failed)

    def run(self) -> None:
        """Compare; the input's rows are counted once all are read."""
        run_plan = RunPlan.from_json(self._output.run.get("plan"))
        plan = run_plan.corpus
        if STDIN in plan.sources:
            self._compare_counts()
            return
        sources = {file.source for file in expand(plan.sources)}
        num_rows = 0
        rows = scan(replace(plan, limit=None), run_plan.rows, open_card(run_plan.model))
        for number, row in enumerate(rows, 1):
            # A later session may have had a larger limit; beyond the first only its rows count.
            is_beyond = plan.limit is not None and number > plan.limit
            if is_beyond and not self._is_any_left():
                break
            if isinstance(row, Failure):
                num_rows += self._compare_reject(row, is_beyond)
            else:
                num_rows += self._compare(row, is_beyond)
        self._found.num_in = num_rows
        self._name_the_rest(sources)

    def _compare_counts(self) -> None:
        """Of an input that came from stdin and is gone: what the last run counted of it."""
        counts = _add_left(self._output)
        if counts is None:
            message = "the input came from stdin, and the last session did not live to count it"
            self._add("not_compared", None, message)
            return
        found = self._found
        found.num_in = counts["in"]
        found.notes.append(
            "the input came from stdin: compared with the counts of the last run, not row by row"
        )
        if (lost := counts["made"] - found.num_made) > 0:
            message = f"{lost:,} rows that the last run made are not in manifest.jsonl"
            self._add("missing", None, message, lost)
        there = (found.num_rejected, found.num_failed)
        if there != (counts["rejected"], counts["failed"]):
            message = (
                f"failures.jsonl has {there[0]:,} rejected and {there[1]:,} failed rows; the last "
                f"run counted {counts['rejected']:,} and {counts['failed']:,}"
            )
            self._add("not_compared", None, message)

    def _is_any_left(self) -> bool:
        return self._output.is_any_unseen or bool(self._failed) or self._rejected.total() > 0

    def _compare(self, row: Utterance, is_beyond: bool) -> bool:
        """Whether a row of the input counts, once it is compared."""
        output, where = self._output, f"{row.source}:{row.line}"
        if output.is_made(row.id):
            key = output.made_key(row.id)
            if key is not None and key != key_hash(content_key(row, self._fingerprint))[0]:
                self._add("changed", row.id, f"{where}: not as it was when it was made")
            output.mark_seen(row.id)
            self._failed.pop(row.id, None)
        elif self._failed.pop(row.id, None) is None:
            if is_beyond:
                return False
            self._add("missing", row.id, f"{where}: neither made nor failed")
        return True

    def _compare_reject(self, row: Failure, is_beyond: bool) -> bool:
        place = (row.source, row.line, row.reason)
        if self._rejected[place] > 0:
            self._rejected[place] -= 1
            return True
        row_id = None if row.reason == "duplicate_id" else row.utterance_id
        where = f"{row.source}:{row.line}"
        if row_id is not None and self._output.is_made(row_id):
            self._output.mark_seen(row_id)
            self._add("changed", row_id, f"{where}: was made, and would be rejected: {row.message}")
        elif row_id is not None and self._failed.pop(row_id, None) is not None:
            self._add("changed", row_id, f"{where}: would be rejected now: {row.message}")
        elif is_beyond:
            return False
        else:
            message = f"{where}: {row.reason}, and failures.jsonl does not say so"
            self._add("missing", row.utterance_id, message)
        return True

    def _name_the_rest(self, sources: set[str]) -> None:
        """Rows of OUT that the input does not have; those of other files cannot be judged."""
        elsewhere: Counter[str] = Counter()
        for row_id, source in (*self._output.unseen(), *self._failed.items()):
            if source in sources:
                self._add("not_in_input", row_id, f"{source} does not have it")
            else:
                elsewhere[source] += 1
        for (source, line, reason), count in self._rejected.items():
            if source not in sources:
                elsewhere[source] += count
            elif count > 0:
                message = f"{source}:{line}: failures.jsonl says {reason}; there is no such reject"
                self._add("not_in_input", None, message)
        for source, count in sorted(elsewhere.items()):
            if count:
                note = f"{count:,} rows are of {source}, which run.json does not name: not compared"
                self._found.notes.append(note)
