"""`python -m ttsbatch.kernels.bench.packed_attention`: a prefill pass of the talker."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.kernels.bench.qk_norm_rope import HEAD_DIM, NUM_KV, NUM_Q
from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.packed_attention import packed_attention

PASS_TOKENS = 2048  # the largest prefill graph
NAMED, IN_CONTEXT = (10, 40), (80, 140)  # tokens of a prompt: a named voice, a clip of 6 s


def works(num_slots: int) -> list[Work]:
    """The prompts of all slots, or as many as a pass takes."""
    return [
        _work(f"packed_attention {what} S={num_slots}", lengths(num_slots, *spread))
        for what, spread in (("named", NAMED), ("in context", IN_CONTEXT))
    ]


def lengths(num_prompts: int, low: int, high: int) -> Tensor:
    """Evenly spread lengths in random order, as many as fit into a pass."""
    spread = torch.linspace(low, high, num_prompts).long()[torch.randperm(num_prompts)]
    return spread[spread.cumsum(0) <= PASS_TOKENS]


def masked_attention(q: Tensor, k: Tensor, v: Tensor, position: Tensor) -> Tensor:
    """The reference without lengths on the host, so that a graph can hold it: one mask for all.

    `reference.packed_attention` goes from prompt to prompt, which is right and no rival.
    """
    prompt = (position == 0).cumsum(0)
    own = prompt[:, None] == prompt[None, :]
    causal = position[:, None] >= position[None, :]
    heads = [x.transpose(0, 1)[None] for x in (q, k, v)]  # [1, H, T, D] each
    seen = F.scaled_dot_product_attention(
        heads[0], heads[1], heads[2], attn_mask=own & causal, enable_gqa=True
    )
    return seen[0].transpose(0, 1)


def _work(name: str, num_tokens: Tensor) -> Work:
    position = torch.cat([torch.arange(n) for n in num_tokens.tolist()]).to("cuda")
    shape = (len(position), NUM_Q + 2 * NUM_KV, HEAD_DIM)
    packed = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    q, k, v = packed.split([NUM_Q, NUM_KV, NUM_KV], dim=1)
    return Work(
        f"{name} T={len(position)}",
        packed_attention,
        masked_attention,
        [(q, k, v, position)],
        num_bytes(packed, q),  # the output is as large as q
    )


if __name__ == "__main__":
    main(works)
