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

from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig, StackConfig
from ttsbatch.models.qwen3_tts.sizes import PREDICTOR, TALKER, talker_shapes
from ttsbatch.models.tensor_specs import Specs, TensorSpec

FOLD_ROWS = 8192  # text rows per GEMM while the table is folded: bounds its activations


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]."""

    input_norm: Tensor  # [E]
    qkv: Tensor  # [(Hq + 2 Hkv) D, E]
    q_norm: Tensor  # [D]
    k_norm: Tensor  # [D]
    out: Tensor  # [E, Hq D]
    post_norm: Tensor  # [E]
    gate_up: Tensor  # [2 I, E]
    down: Tensor  # [E, I]


@dataclass(frozen=True, slots=True)
class StackWeights:
    """The layers and the final norm."""

    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [E]


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


def talker_specs(config: Qwen3TTSConfig) -> Specs:
    """The shapes with the random stand-ins' scales: matrices keep the variance, norms are 1."""
    specs: Specs = {}
    for name, shape in talker_shapes(config).items():
        if name.endswith("norm.weight"):
            specs[name] = TensorSpec(shape, mean=1.0)
        elif "embedding" in name or len(shape) == 1:
            specs[name] = TensorSpec(shape, std=0.02)
        else:
            specs[name] = TensorSpec(shape, std=shape[-1] ** -0.5)
    return specs


def pack_talker(
    tensors: Mapping[str, Tensor], config: Qwen3TTSConfig, device: torch.device, dtype: torch.dtype
) -> TalkerWeights:
    """The tensors of `talker_shapes`, moved to the device in the run dtype and packed."""

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
        talker=_pack_stack(get, f"{TALKER}model.", t.stack),
        head=get(f"{TALKER}codec_head.weight"),
        text=_fold_text(get),
        codes=torch.cat(tables),
        code_offsets=torch.tensor(offsets, device=device),
        predictor=_pack_stack(get, f"{PREDICTOR}model.", p.stack),
        predictor_heads=torch.stack([get(f"{PREDICTOR}lm_head.{g}.weight") for g in rest]),
        predictor_codes=torch.stack(fed),
        projection=projection,
    )


def _pack_stack(get: Callable[[str], Tensor], prefix: str, config: StackConfig) -> StackWeights:
    layers = []
    for n in range(config.num_layers):
        layer = f"{prefix}layers.{n}."
        attention = f"{layer}self_attn."
        layers.append(
            LayerWeights(
                input_norm=get(f"{layer}input_layernorm.weight"),
                qkv=torch.cat([get(f"{attention}{x}_proj.weight") for x in "qkv"]),
                q_norm=get(f"{attention}q_norm.weight"),
                k_norm=get(f"{attention}k_norm.weight"),
                out=get(f"{attention}o_proj.weight"),
                post_norm=get(f"{layer}post_attention_layernorm.weight"),
                gate_up=torch.cat([get(f"{layer}mlp.{x}_proj.weight") for x in ("gate", "up")]),
                down=get(f"{layer}mlp.down_proj.weight"),
            )
        )
    return StackWeights(tuple(layers), get(f"{prefix}norm.weight"))


def _fold_text(get: Callable[[str], Tensor]) -> Tensor:
    """fc2(silu(fc1(embedding))) of every text id, in the run dtype as the model would."""
    table = get(f"{TALKER}model.text_embedding.weight")
    fc1 = [get(f"{TALKER}text_projection.linear_fc1.{x}") for x in ("weight", "bias")]
    fc2 = [get(f"{TALKER}text_projection.linear_fc2.{x}") for x in ("weight", "bias")]
    return torch.cat([F.linear(F.silu(F.linear(x, *fc1)), *fc2) for x in table.split(FOLD_ROWS)])
