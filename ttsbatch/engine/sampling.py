"""The engine's `Draw`: per-slot settings and keyed uniforms handed to a model's step.

A draw is keyed by (utterance seed, segment and attempt, frame, codebook), never by slot, batch or
order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.engine.rows import Rows
from ttsbatch.kernels.noise import philox_normal
from ttsbatch.kernels.reference.sampler import philox_uniform
from ttsbatch.kernels.sampler import sample
from ttsbatch.models.protocol import Rules


class Sampler:
    """Draws for the rows of one set of slots."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._books = torch.arange(rows.frames.shape[2], device=rows.device)[:, None]
        self._frame: Tensor | None = None  # [Q, S] uniforms of the frame that is being made

    def __call__(
        self, logits: Tensor, codebook: int, rules: Rules | None = None, seen: Tensor | None = None
    ) -> Tensor:
        """One id per slot; see `kernels.sampler.sample` for the order of the rules."""
        r = self._rows
        if not logits.is_cuda:  # there the kernel makes its own; here one call serves a frame
            if codebook == 0 or self._frame is None:
                self._frame = philox_uniform(r.seed, r.age, self._books, r.stream)
            uniform = self._frame[codebook]
        else:
            uniform = None
        book = min(codebook, 1)  # settings of codebook 0 and of the others
        return sample(
            logits,
            r.temperature[book],
            r.top_k[book],
            r.top_p[book],
            r.penalty if seen is not None else None,
            seen,
            rules.banned if rules is not None else None,
            rules.end_id if rules is not None else -1,
            rules.min_frames if rules is not None else 0,
            r.age,
            r.seed,
            codebook,
            r.stream,
            mark_seen=seen is not None,
            uniform=uniform,
        )

    def normal(self, count: int) -> Tensor:
        """Standard normal numbers [S, count] of the frame that is being made."""
        r = self._rows
        return philox_normal(r.seed, r.age, r.stream, count)
