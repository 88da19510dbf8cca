"""The talker's tensors, checked or random, packed for the run.

Packed means: q, k and v as one matrix, gate and up as one, all code tables as one, and the text
path folded into a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.decoder import StackWeights, pack_stack
from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig
from ttsbatch.models.qwen3_tts.sizes import PREDICTOR, TALKER

FOLD_ROWS = 8192  # text rows per GEMM while the table is folded: bounds its activations


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """All that the talker, the predictor and the prompts read."""

    talker: StackWeights
    head: Tensor  # [V, E]
    text: Tensor  # [Vt, E] the text path of every id
    codes: Tensor  # [V + (Q-1) Vc, E] talker's code table, then the predictor's, one below another
    code_offsets: Tensor  # [Q] int64 first row of each codebook in `codes`
    predictor: StackWeights
    predictor_heads: Tensor  # [Q-1, Vc, W]
    predictor_codes: Tensor  # [Q-1, Vc, W] projected tables of codebooks 0..Q-2
    projection: tuple[Tensor, Tensor] | None  # [W, E], [W]; None: widths are equal


def pack_talker(
    tensors: Mapping[str, Tensor], config: Qwen3TTSConfig, device: torch.device, dtype: torch.dtype
) -> TalkerWeights:
    """The tensors of `talker_specs`, moved to the device in the run dtype and packed."""

    def get(name: str) -> Tensor:
        return tensors[name].to(device=device, dtype=dtype)

    t, p = config.talker, config.predictor
    rest = range(t.num_codebooks - 1)
    tables = [get(f"{TALKER}model.codec_embedding.weight")]
    tables += [get(f"{PREDICTOR}model.codec_embedding.{g}.weight") for g in rest]
    offsets = [0] + [t.vocab_size + g * p.vocab_size for g in rest]
    projection = None
    if f"{PREDICTOR}small_to_mtp_projection.weight" in tensors:
        name = f"{PREDICTOR}small_to_mtp_projection"
        projection = (get(f"{name}.weight"), get(f"{name}.bias"))
    fed = [tables[0][: p.vocab_size], *tables[1:-1]]  # the last codebook is never fed back
    if projection is not None:
        fed = [F.linear(x, *projection) for x in fed]
    return TalkerWeights(
        talker=pack_stack(get, f"{TALKER}model.", t.stack.num_layers, has_qk_norm=True),
        head=get(f"{TALKER}codec_head.weight"),
        text=_fold_text(get),
        codes=torch.cat(tables),
        code_offsets=torch.tensor(offsets, device=device),
        predictor=pack_stack(get, f"{PREDICTOR}model.", p.stack.num_layers, has_qk_norm=True),
        predictor_heads=torch.stack([get(f"{PREDICTOR}lm_head.{g}.weight") for g in rest]),
        predictor_codes=torch.stack(fed),
        projection=projection,
    )


def _fold_text(get: Callable[[str], Tensor]) -> Tensor:
    """fc2(silu(fc1(embedding))) of every text id, in the run dtype as the model would."""
    table = get(f"{TALKER}model.text_embedding.weight")
    fc1 = [get(f"{TALKER}text_projection.linear_fc1.{x}") for x in ("weight", "bias")]
    fc2 = [get(f"{TALKER}text_projection.linear_fc2.{x}") for x in ("weight", "bias")]
    return torch.cat([F.linear(F.silu(F.linear(x, *fc1)), *fc2) for x in table.split(FOLD_ROWS)])
