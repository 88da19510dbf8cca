"""One measured figure, what it has to be read with, and when it does not count."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttsbatch import __version__
from ttsbatch.errors import EngineError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured figure."""

    name: str
    slots: int  # 0 where there are none
    seconds: float
    audio_seconds: float
    extra: dict[str, float]
    slow_paths: dict[str, int] = field(default_factory=dict)
    """What ran without a graph or without kernels after warm-up, by name; zeros may be in it."""
    command: str | None = None  # that made `report`
    report: dict[str, Any] | None = None  # report.json of a run

    @property
    def audio_seconds_per_second(self) -> float:
        """The throughput; 0 where the part makes no audio."""
        return self.audio_seconds / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = asdict(self) | {"audio_seconds_per_second": self.audio_seconds_per_second}
        return {k: v for k, v in values.items() if v is not None}


def check_paths(timings: Iterable[Timing]) -> None:
    """See that all ran as a run on a GPU must: in graphs, and in kernels.

    Args:
        timings: of parts that ran on a GPU; on a CPU there are neither.

    Raises:
        EngineError: something did not; the figures are not those of the product.
    """
    slow = [
        f"{timing.name}{f' with {timing.slots} slots' if timing.slots else ''}: {count:,} {path}"
        for timing in timings
        for path, count in timing.slow_paths.items()
        if count
    ]
    if slow:
        raise EngineError(f"the bench left the fast path: {'; '.join(slow)}; expected none")


def describe(model: str, device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """What figures have to be read with: versions, commit, device, dtype, model."""
    import torch

    about = {"ttsbatch": __version__, "torch": torch.__version__}
    if commit := _commit():
        about["commit"] = commit
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return about | {"device": name, "dtype": str(dtype).removeprefix("torch."), "model": model}


def _commit() -> str | None:
    """The commit of the checkout that runs, `+` where files differ from it; None outside of one."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # an installation lies in no checkout of ours
        return git("describe", "--always", "--dirty=+", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None
