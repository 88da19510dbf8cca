"""The sizes of a stack of decoder layers, and the tensors that it has in a checkpoint; no torch.

Source: the names under which Hugging Face's decoder-only models store their layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttsbatch.models.tensor_specs import Specs, TensorSpec


@dataclass(frozen=True, slots=True)
class StackConfig:
    """A stack of decoder layers."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float


def stack_specs(prefix: str, config: StackConfig, has_qk_norm: bool = False) -> Specs:
    """Its tensors and its final norm's; random matrices keep the variance, norms are 1."""
    e, i, d = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_heads * d, config.num_kv_heads * d
    norms = {f"{prefix}norm.weight": e}
    matrices: dict[str, tuple[int, int]] = {}
    for n in range(config.num_layers):
        layer = f"{prefix}layers.{n}."
        attention = f"{layer}self_attn."
        norms |= {
            f"{layer}input_layernorm.weight": e,
            f"{layer}post_attention_layernorm.weight": e,
        }
        if has_qk_norm:
            norms |= {f"{attention}q_norm.weight": d, f"{attention}k_norm.weight": d}
        matrices |= {
            f"{attention}q_proj.weight": (q, e),
            f"{attention}k_proj.weight": (kv, e),
            f"{attention}v_proj.weight": (kv, e),
            f"{attention}o_proj.weight": (e, q),
            f"{layer}mlp.gate_proj.weight": (i, e),
            f"{layer}mlp.up_proj.weight": (i, e),
            f"{layer}mlp.down_proj.weight": (e, i),
        }
    return {name: TensorSpec((width,), mean=1.0) for name, width in norms.items()} | {
        name: TensorSpec(shape, std=shape[1] ** -0.5) for name, shape in matrices.items()
    }
