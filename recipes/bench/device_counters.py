"""What the driver says of a GPU while something else runs: share of time with a kernel, memory.

`nvidia-smi` in a process of its own: it costs the run nothing. Its utilization is the share of the
last sample period (a fraction of a second) in which at least one kernel ran.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

EVERY_MS = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading."""

    at_s: float  # `time.monotonic`
    busy: float  # 0..1
    memory_bytes: int  # that all processes hold


@dataclass
class DeviceCounters:
    """Reads them while it is entered; of the first GPU."""

    samples: list[Sample] = field(default_factory=list)

    def __enter__(self) -> DeviceCounters:
        query = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        self._tool = subprocess.Popen(
            ["nvidia-smi", "--id=0", *query, f"--loop-ms={EVERY_MS}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._tool.terminate()
        self._tool.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._tool.stdout is not None
        for line in self._tool.stdout:
            busy, memory = line.split(",")
            self.samples.append(Sample(time.monotonic(), float(busy) / 100, int(memory) << 20))

    def between(self, begin_s: float, end_s: float) -> list[Sample]:
        """The readings of a span of time."""
        return [s for s in self.samples if begin_s <= s.at_s <= end_s]
