"""The error tree, and the exit code that each branch ends in.

    TTSBatchError          1
    ├── PlanError          2   options, recipe
    ├── CorpusError        3   input files that cannot be read
    ├── ModelError         4   checkpoint: missing, unknown, damaged
    ├── EngineError        5   device, memory, a step that failed
    └── SinkError          6   output: disk, lock, damaged ledger

A bad row is no error: it becomes a `types.Failure` and the run goes on.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_ROWS_FAILED = 7
EXIT_INTERRUPTED = 130


class TTSBatchError(Exception):
    """Any failure that ends a run; the message says where, what was found, what was expected."""

    exit_code = 1


class PlanError(TTSBatchError):
    """The options or the recipe do not describe a run."""

    exit_code = 2


class CorpusError(TTSBatchError):
    """A corpus file cannot be read at all, or has no text column."""

    exit_code = 3


class ModelError(TTSBatchError):
    """A checkpoint is missing, unknown or damaged."""

    exit_code = 4


class EngineError(TTSBatchError):
    """The device or the decode loop failed."""

    exit_code = 5


class SinkError(TTSBatchError):
    """The output folder cannot be written, is in use, or holds another run."""

    exit_code = 6
