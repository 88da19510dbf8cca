"""The checks that need a model of their own: asked for one by one, measured on threads.

Each takes a finished take and returns what it measured and what is wrong. They cost tens to
hundreds of milliseconds a row, so the pipeline hands takes over and collects them later; what the
cheap checks flag is spoken again without them.
"""

from __future__ import annotations

import importlib.util
import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ttsbatch.errors import PlanError
from ttsbatch.plan import ChecksPlan
from ttsbatch.types import ShardRecord

RATE_HZ = 16_000  # what these models were trained on
MAX_PENDING = 64  # takes that wait to be measured; beyond it the pipeline waits
MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """What one check found in one take."""

    values: Mapping[str, Any]  # plain JSON values, for the manifest's `checks`
    reasons: tuple[str, ...] = ()


class ExtraCheck(Protocol):
    """A check behind an option. `measure` is called on several threads."""

    name: str  # "asr"; `asr_failed` marks a take that it could not measure

    def measure(self, take: ShardRecord) -> Measured:
        """Measure a take; nothing of it is changed."""
        ...


def require(option: str, package: str, extra: str) -> None:
    """See that a package is installed.

    Raises:
        PlanError: it isn't; the message names what to install.
    """
    if importlib.util.find_spec(package) is None:
        raise PlanError(
            f"{option} needs the package {package.replace('_', '-')}, which is not installed; "
            f"expected: pip install 'ttsbatch[{extra}]'"
        )


def check_extras(plan: ChecksPlan) -> None:
    """See that packages and files of the checks that are asked for are there; loads nothing.

    Raises:
        PlanError: something is missing.
    """
    if plan.asr is not None:
        from ttsbatch.quality.asr import check_folder

        check_folder(plan.asr)
    if plan.speaker is not None:
        from ttsbatch.quality.onnx import check_file

        check_file("--check-speaker", Path(plan.speaker))
    if plan.dnsmos is not None:
        from ttsbatch.quality.dnsmos import model_file
        from ttsbatch.quality.onnx import check_file

        check_file("--check-dnsmos", model_file(plan.dnsmos))


def load_extras(plan: ChecksPlan) -> list[ExtraCheck]:
    """The checks that are asked for, loaded.

    Raises:
        PlanError: a model is missing, damaged, or not of the kind that was expected.
    """
    check_extras(plan)
    checks: list[ExtraCheck] = []
    if plan.asr is not None:
        from ttsbatch.quality.asr import load_asr

        checks.append(load_asr(plan.asr, plan.max_wer))
    if plan.speaker is not None:
        from ttsbatch.quality.speaker import load_speaker_check

        checks.append(load_speaker_check(Path(plan.speaker), plan.min_similarity))
    if plan.dnsmos is not None:
        from ttsbatch.quality.dnsmos import load_dnsmos

        checks.append(load_dnsmos(plan.dnsmos, plan.min_mos))
    return checks


def at_16_khz(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> npt.NDArray[np.float32]:
    """[N] int16 as [M] float32 in -1..1 at 16 kHz."""
    wave = samples.astype(np.float32) / np.float32(32_768)
    if sample_rate_hz == RATE_HZ:
        return wave
    import soxr

    resampled: npt.NDArray[np.float32] = soxr.resample(wave, sample_rate_hz, RATE_HZ)
    return resampled


class Measuring:
    """Takes in work, on threads; a context manager. Its methods are for one thread."""

    def __init__(
        self,
        checks: Sequence[ExtraCheck],
        num_threads: int | None = None,
        max_pending: int = MAX_PENDING,
    ) -> None:
        if num_threads is None:
            num_threads = max(1, min(MAX_THREADS, (os.cpu_count() or 1) // 2))
        self._checks = checks
        self._max_pending = max_pending
        self._pending: deque[Future[ShardRecord]] = deque()
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="ttsbatch-check")

    def __enter__(self) -> Measuring:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def submit(self, take: ShardRecord) -> None:
        """Have a take measured."""
        self._pending.append(self._pool.submit(self._measure, take))

    def done(self, wait: bool = False) -> list[ShardRecord]:
        """Takes whose checks are complete, in the order of `submit`; each comes once.

        Args:
            wait: for all of them. Else only while more than `max_pending` are in work.
        """
        done: list[ShardRecord] = []
        while self._pending and (
            wait or self._pending[0].done() or len(self._pending) > self._max_pending
        ):
            done.append(self._pending.popleft().result())
        return done

    def _measure(self, take: ShardRecord) -> ShardRecord:
        if not len(take.samples):
            return take  # flagged already, and nothing to hear
        values: dict[str, Any] = dict(take.checks)
        reasons = list(values["reasons"])
        for check in self._checks:
            try:
                measured = check.measure(take)
            except Exception as e:  # one clip's trouble, whatever it is, must not stop the others
                failed = f"{check.name}_failed"
                measured = Measured({failed: f"{type(e).__name__}: {e}"}, (failed,))
            values |= measured.values
            reasons += measured.reasons
        values["reasons"] = reasons
        values["verdict"] = "flag" if reasons else "pass"
        return replace(take, checks=values)
