"""export_run(): the finished rows of an OUT, each once, into one form under a new name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttsbatch.errors import PlanError, SinkError
from ttsbatch.export.clips import Clip, is_flagged, open_clip
from ttsbatch.export.hf import write_audiofolder, write_parquet
from ttsbatch.export.lhotse import write_lhotse, write_shar
from ttsbatch.export.ljspeech import write_ljspeech
from ttsbatch.export.nemo import write_nemo
from ttsbatch.export.publish import new_folder
from ttsbatch.export.target import Setting
from ttsbatch.export.webdataset import write_webdataset
from ttsbatch.report import load_report
from ttsbatch.sinks.lock import held_still
from ttsbatch.sinks.names import NameBook, own_path, safe_path
from ttsbatch.sinks.owner import in_use_by as writer_of
from ttsbatch.sinks.remote import name_of, opened_for_reading
from ttsbatch.sinks.store_files import StoreReader
from ttsbatch.sinks.stored import AudioReader, FinishedRows, split_audio_path
from ttsbatch.uri import local_path

DEFAULT_SHARD_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """A form that an export can have."""

    write: Callable[[Iterable[Clip], Path, Setting], None]
    has_files: bool  # a file per row, which may be a link
    has_shards: bool
    dots: bool = True  # whether keys may hold dots


FORMS = {
    "hf": Form(write_parquet, has_files=False, has_shards=True),
    "hf --audiofolder": Form(write_audiofolder, has_files=True, has_shards=False),
    "nemo": Form(write_nemo, has_files=True, has_shards=False),
    "lhotse": Form(write_lhotse, has_files=True, has_shards=False),
    "lhotse --shar": Form(write_shar, has_files=False, has_shards=True),
    "webdataset": Form(write_webdataset, has_files=False, has_shards=True, dots=False),
    "ljspeech": Form(write_ljspeech, has_files=True, has_shards=False),
}
"""By what is said on the command line."""


@dataclass(slots=True)
class Exported:
    """What an export holds, and what it does not."""

    form: str
    path: Path
    rows: int = 0
    audio_s: float = 0.0
    flagged: int = 0  # exported, and marked
    flagged_left_out: int = 0
    not_made: int = 0  # rejected or failed rows of the run
    left: int | None = 0  # rows that the run has still to make; None: not known

    @property
    def is_unfinished(self) -> bool:
        """Whether the run has more rows to come."""
        return self.left is None or self.left > 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "to": self.form,
            "path": str(self.path),
            "rows": self.rows,
            "audio_seconds": self.audio_s,
            "flagged": self.flagged,
            "flagged_left_out": self.flagged_left_out,
            "not_made": self.not_made,
            "left": self.left,
        }


def export_run(
    out: Path | str,
    form: str,
    path: Path,
    *,
    include_flagged: bool = False,
    link: bool = False,
    shard_size: int | None = None,
    on_row: Callable[[int], object] = lambda total: None,
) -> Exported:
    """Write the finished rows of `out` to `path`; OUT is not changed.

    Args:
        out: the output of a run that is not in progress: a folder, or its URI.
        form: a key of FORMS.
        path: a name that is free, or an empty folder; there only once the export is whole.
        include_flagged: take flagged rows too, marked.
        link: hard links in place of copies.
        shard_size: rows of a shard; None: the default.
        on_row: called after each row with the number of all rows to come.

    Raises:
        PlanError: an option that the form or the layout has no use for, or a bad `path`.
        SinkError: no output of a run, one in progress, nothing to export, audio that is missing or
            damaged, something at `path`, or a failed write. Nothing is then at `path`.
    """
    if link and not FORMS[form].has_files:
        raise PlanError(f"--link has no use for --to {form}: the audio goes into shards")
    if shard_size is not None and not FORMS[form].has_shards:
        raise PlanError(f"--shard-size has no use for --to {form}: it has no shards")
    folder = local_path(out)
    if folder is None and link:
        raise PlanError(f"--link has no use here: {name_of(out)} is no local folder; leave it out")
    if folder is not None and path.resolve().is_relative_to(folder.resolve()):
        raise PlanError(f"-o is {path}; expected a path outside of {folder}")
    done = Exported(form, path)
    with _held(out) as (source, reader):
        rows = FinishedRows(source)
        _note_unfinished(source, done)
        keys = _Keys(FORMS[form].dots)
        total = _survey(rows, keys, include_flagged, link, done)
        if not total:
            more = f"; {done.flagged_left_out:,} are flagged (--include-flagged takes them)"
            more = more if done.flagged_left_out else ""
            raise SinkError(f"{name_of(out)}: has no finished rows to export{more}")
        setting = Setting(path.resolve().name, total, shard_size or DEFAULT_SHARD_SIZE)
        with new_folder(path) as target:

            def clips() -> Iterator[Clip]:
                for record in reader.ahead(r for r in rows if include_flagged or not is_flagged(r)):
                    clip = open_clip(record, keys.of(record["id"]), source, reader, link)
                    yield clip
                    done.rows += 1
                    done.audio_s += clip.record["duration"]
                    done.flagged += clip.is_flagged
                    on_row(total)

            FORMS[form].write(clips(), target, setting)
            assert done.rows == total
    return done


@contextlib.contextmanager
def _held(out: Path | str) -> Iterator[tuple[Path, AudioReader]]:
    """(folder, reader of its audio) of an OUT that no run writes to meanwhile."""
    with opened_for_reading(out) as (folder, store):
        if store is None:
            with held_still(folder / "ledger"), AudioReader(folder) as reader:
                yield folder, reader
            return
        if held := writer_of(store):
            raise SinkError(f"{store}: in use by {held}; expected a run that is over")
        with StoreReader(folder, store) as reader:
            yield folder, reader


class _Keys:
    """Ids as file names, no two of them the same."""

    def __init__(self, dots: bool) -> None:
        self._dots = dots
        self._names = NameBook()

    def note(self, utterance_id: str) -> None:
        self._names.note_path(self._wish(utterance_id))

    def of(self, utterance_id: str) -> str:
        return self._names.unshared(utterance_id, self._wish(utterance_id))

    def _wish(self, utterance_id: str) -> str:
        path = safe_path(utterance_id, None)
        if self._dots or "." not in path:
            return path
        return own_path(utterance_id, path.replace(".", "_"))


def _survey(
    rows: FinishedRows, keys: _Keys, include_flagged: bool, link: bool, done: Exported
) -> int:
    """Read the manifest once before anything is written; returns the number of rows to export."""
    total = 0
    for record in rows:
        if is_flagged(record) and not include_flagged:
            done.flagged_left_out += 1
            continue
        shard, member = split_audio_path(record)
        if link and member is not None:
            raise PlanError(f"--link needs a file per row; {shard} holds many: leave it out")
        keys.note(record["id"])
        total += 1
    return total


def _note_unfinished(out: Path, done: Exported) -> None:
    try:
        counts = load_report(out).values["utterances"]
        done.not_made = int(counts["rejected"] + counts["failed"])
        done.left = max(0, int(counts["in"] - counts["made"]) - done.not_made)
    except SinkError:
        done.left = None
    if (out / "ledger/session.json").exists():  # a killed session: its report is an older one's
        done.left = None
