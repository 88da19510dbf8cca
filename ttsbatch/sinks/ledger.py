"""The ledger: what is finished. OUT/ledger/commits.bin, 96 bytes a row, written last of all.

A row is finished once its record is here; whatever else a crash left behind is then known to be a
leftover. Records are fixed-size and carry their own checksum, so a torn tail is seen at any byte,
and ten million of them load in seconds. The last record of an id counts: a MADE record replaces
an earlier one, a GONE record takes the row back, as it must before its file is overwritten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.errors import SinkError
from ttsbatch.sinks.totals import FLAG_FLAGGED, Totals

Records = npt.NDArray[Any]  # of RECORD

RECORD = np.dtype(
    [
        ("check", "<u8"),  # over the other eleven words
        ("id_hi", "<u8"),
        ("id_lo", "<u8"),
        ("key_hi", "<u8"),
        ("key_lo", "<u8"),
        ("offset", "<u8"),  # of its line in manifest.jsonl
        ("length", "<u4"),
        ("shard", "<u4"),
        ("num_samples", "<u8"),
        ("sample_rate_hz", "<u4"),
        ("num_chars", "<u4"),
        ("elapsed_s", "<f8"),  # SESSION: unix time of its start
        ("cost_s", "<f8"),
        ("session", "<u4"),
        ("attempts", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
    ]
)
SESSION, MADE, GONE = 1, 2, 3

MAGIC = b"ttsbatch ledger 1\n".ljust(RECORD.itemsize, b"\0")
MAX_GROUP_ROWS = 512  # rows committed at once at most; as many may be torn at the end
_CHUNK_RECORDS = 1 << 18
_WEIGHTS = (np.arange(1, 12, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


def id_hash(utterance_id: str) -> tuple[int, int]:
    """An id as two 64-bit numbers."""
    digest = blake2b(utterance_id.encode("utf8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def key_hash(key: str) -> tuple[int, int]:
    """A resume key (32 hex digits) as two 64-bit numbers."""
    return int(key[:16], 16), int(key[16:], 16)


def checksum(records: Records) -> npt.NDArray[np.uint64]:
    """[n] what `check` must be; all zero bytes are not valid."""
    words = np.ascontiguousarray(records).view("<u8").reshape(-1, 12)[:, 1:]
    mixed = words ^ (words >> np.uint64(29))
    total: npt.NDArray[np.uint64] = (mixed * _WEIGHTS).sum(axis=1, dtype=np.uint64)
    return total + np.uint64(1)


def seal(records: Records) -> bytes:
    """The records as they go to the file, `check` filled in."""
    records["check"] = checksum(records)
    return records.tobytes()


@dataclass(slots=True)
class Finished:
    """Which ids are finished and with which key; 28 bytes a row."""

    id_hi: npt.NDArray[np.uint64]  # [n] sorted
    id_lo: npt.NDArray[np.uint64]
    key_hi: npt.NDArray[np.uint64]
    position: npt.NDArray[np.uint32]  # of the record in the file

    @classmethod
    def of(cls, parts: list[Records]) -> Finished:
        """From the columns of MADE records and their positions."""
        if not parts:
            none = np.zeros(0, np.uint64)
            return cls(none, none, none, np.zeros(0, np.uint32))
        hi = np.concatenate([r["id_hi"] for r in parts])
        order = np.argsort(hi, kind="stable")
        lo = np.concatenate([r["id_lo"] for r in parts])[order]
        key = np.concatenate([r["key_hi"] for r in parts])[order]
        position = np.concatenate([r["position"] for r in parts])[order]
        return cls(hi[order], lo, key, position)

    @classmethod
    def of_live(cls, live: Records) -> Finished:
        """From the records of `live_rows`; a position is then an index into those."""
        names = ("id_hi", "id_lo", "key_hi")
        index = np.zeros(len(live), [*((n, "<u8") for n in names), ("position", "<u4")])
        for name in names:
            index[name] = live[name]
        index["position"] = np.arange(len(live))
        return cls.of([index])

    def __len__(self) -> int:
        return len(self.id_hi)

    @property
    def num_doubled(self) -> int:
        """Records of ids that have an earlier one."""
        # Two ids that share 64 bits do not occur; if they did, a needless compaction would follow.
        return int(np.count_nonzero(self.id_hi[1:] == self.id_hi[:-1]))

    def find(self, hashed_id: tuple[int, int]) -> tuple[int, int] | None:
        """(first half of the key, position of the record), or None."""
        i = bisect_left(self.id_hi.data, hashed_id[0])  # half the time of a searchsorted
        while i < len(self.id_hi) and int(self.id_hi[i]) == hashed_id[0]:
            if int(self.id_lo[i]) == hashed_id[1]:
                return int(self.key_hi[i]), int(self.position[i])
            i += 1
        return None


@dataclass(slots=True)
class Scan:
    """A ledger read from end to end."""

    size_bytes: int  # of its valid part; 0: not even a header
    finished: Finished
    totals: Totals
    last_session: int = 0
    num_replaced: int = 0  # rows of which a GONE or a later MADE record says that they are no more
    manifest_bytes: int = 0  # where the last valid line ends
    flagged: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    """Positions of the MADE records of flagged rows, in order."""
    last_shard: int = 0
    last_rows: Records = field(default_factory=lambda: np.zeros(0, RECORD))  # MADE, last shard


def read_chunks(path: Path, end: int | None = None) -> Iterator[tuple[int, Records]]:
    """(position of the first, records) of the whole records of a file, up to byte `end`."""
    with path.open("rb") as file:
        file.seek(len(MAGIC))
        position = 0
        left = None if end is None else (end - len(MAGIC)) // RECORD.itemsize
        while left is None or left > 0:
            count = _CHUNK_RECORDS if left is None else min(left, _CHUNK_RECORDS)
            records = np.fromfile(file, RECORD, count)
            if not len(records):
                return
            yield position, records
            position += len(records)
            left = None if left is None else left - len(records)


def read_record(path: Path, position: int) -> Records:
    """[1] the record at a position."""
    with path.open("rb") as file:
        file.seek(len(MAGIC) + position * RECORD.itemsize)
        return np.fromfile(file, RECORD, 1)


def scan(path: Path, manifest_bytes: int) -> Scan:
    """Read a ledger and find its valid part.

    Args:
        path: the ledger; need not exist.
        manifest_bytes: size of the manifest; a record of a line beyond it does not count.

    Raises:
        SinkError: not a ledger of ours, or damaged elsewhere than at its end.
    """
    out = Scan(0, Finished.of([]), Totals())
    head = b""
    if path.exists():
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    if head != MAGIC:
        if head != MAGIC[: len(head)]:
            raise SinkError(f"{path}: not a ledger that this version reads")
        return out  # the header itself is torn: nothing was ever committed
    total = (path.stat().st_size - len(MAGIC)) // RECORD.itemsize
    parts: list[Records] = []
    flagged = [out.flagged]
    good = 0
    for start, chunk in read_chunks(path):
        bad = np.flatnonzero((checksum(chunk) != chunk["check"]) | (chunk["kind"] - 1 > 2))
        if len(bad) and total - (start + int(bad[0])) > MAX_GROUP_ROWS:
            raise SinkError(
                f"{path}: record {start + int(bad[0])} of {total} is damaged; restore the file "
                "from a backup, or write to another folder"
            )
        records = chunk[: bad[0]] if len(bad) else chunk
        ends = records["offset"] + records["length"]
        beyond = np.flatnonzero((records["kind"] == MADE) & (ends > manifest_bytes))
        cut = len(beyond) > 0
        records = records[: beyond[0]] if cut else records
        good = start + len(records)
        _take(out, parts, start, records)
        is_flagged = (records["kind"] == MADE) & (records["flags"] & FLAG_FLAGGED > 0)
        flagged.append((start + np.flatnonzero(is_flagged)).astype(np.uint32))
        if cut or len(bad):
            break
    out.finished, out.flagged = Finished.of(parts), np.concatenate(flagged)
    out.num_replaced += out.finished.num_doubled
    out.size_bytes = len(MAGIC) + good * RECORD.itemsize
    return out


_INDEX = np.dtype([("id_hi", "<u8"), ("id_lo", "<u8"), ("key_hi", "<u8"), ("position", "<u4")])


def _take(out: Scan, parts: list[Records], start: int, records: Records) -> None:
    for row in records[records["kind"] == SESSION]:
        out.totals.begin_session(int(row["session"]), float(row["elapsed_s"]))
        out.last_session = max(out.last_session, int(row["session"]))
    out.num_replaced += int(np.count_nonzero(records["kind"] == GONE))
    made_at = np.flatnonzero(records["kind"] == MADE)
    made = records[made_at]
    if not len(made):
        return
    index = np.zeros(len(made), _INDEX)
    for name in ("id_hi", "id_lo", "key_hi"):
        index[name] = made[name]
    index["position"] = start + made_at
    parts.append(index)
    out.totals.add(made)
    out.manifest_bytes = int(made["offset"][-1]) + int(made["length"][-1])
    last = int(made["shard"].max())
    if last > out.last_shard:
        out.last_shard, out.last_rows = last, np.zeros(0, RECORD)
    out.last_rows = np.concatenate([out.last_rows, made[made["shard"] == out.last_shard]])


def made_in_shard(path: Path, end: int, shard: int) -> Records:
    """The MADE records of a shard, in order, up to byte `end`."""
    found = [r[(r["kind"] == MADE) & (r["shard"] == shard)] for _, r in read_chunks(path, end)]
    return np.concatenate(found) if found else np.zeros(0, RECORD)


def live_rows(path: Path, end: int) -> tuple[Records, Records, Records]:
    """(live, dead, sessions): the records up to byte `end`, in order; dead ones were replaced."""
    chunks = [r for _, r in read_chunks(path, end)]
    records = np.concatenate(chunks) if chunks else np.zeros(0, RECORD)
    rows = np.flatnonzero(records["kind"] != SESSION)
    ids = records[rows]
    order = np.lexsort((ids["id_lo"], ids["id_hi"]))  # stable: an id's records stay in order
    hi, lo = ids["id_hi"][order], ids["id_lo"][order]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
    live = np.zeros(len(records), bool)
    live[rows[order[is_last]]] = True
    made = records["kind"] == MADE
    return records[made & live], records[made & ~live], records[records["kind"] == SESSION]
