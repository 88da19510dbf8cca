"""What every writer of a form is given beside the clips."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked for, and what is known of all rows before the first is written."""

    name: str  # what the data set is called
    num_rows: int
    shard_size: int  # rows, in forms that have shards
