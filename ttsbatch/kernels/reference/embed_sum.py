"""The sum of a frame's code embeddings and its text vector, in plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RunningText:
    """Texts that go along with the frames, one id a frame: a row's next one, or the padding."""

    ids: Tensor  # [S, N] integers, rows of `table`; a row is contiguous
    places: Tensor  # [S] int64, which of its ids is a row's next
    lengths: Tensor  # [S] int64, how many ids a row has
    pad_id: int  # the id from there on
    table: Tensor  # [V_text, E] in the dtype of the code tables, contiguous

    def next_ids(self) -> Tensor:
        """[S] int64."""
        last = self.ids.shape[1] - 1
        found = self.ids.gather(1, self.places.clamp(max=last)[:, None])[:, 0].to(torch.int64)
        return torch.where(self.places < self.lengths, found, self.pad_id)


def embed_sum(
    codes: Tensor,
    table: Tensor,
    offsets: Tensor,
    text: RunningText | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """As `ttsbatch.kernels.embed_sum.embed_sum`."""
    picked = table[codes.to(torch.int64) + offsets]  # [S, Q, E]
    total = picked.to(torch.float32).sum(dim=1).to(table.dtype)
    if text is not None:
        total = total + text.table[text.next_ids()]
    return total if out is None else out.copy_(total)
