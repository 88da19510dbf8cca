"""Names and shapes of the main file's tensors, from the configuration alone; no torch.

Source: tensor names of the published Qwen3-TTS checkpoints (reference of `qwen-tts` 0.1.1).
"""

from __future__ import annotations

import math

from ttsbatch.models import tensor_specs
from ttsbatch.models.qwen3_tts import codec_specs
from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig, StackConfig

Shapes = dict[str, tuple[int, ...]]
TALKER, PREDICTOR = "talker.", "talker.code_predictor."


def num_parameters(config: Qwen3TTSConfig) -> int:
    """Parameters of the main file: talker, predictor, and Base's speaker encoder."""
    own = sum(math.prod(shape) for shape in talker_shapes(config).values())
    if config.speaker is None:
        return own
    return own + tensor_specs.num_parameters(codec_specs.speaker_specs(config.speaker))


def stack_shapes(prefix: str, config: StackConfig) -> Shapes:
    """Tensors of a stack of decoder layers and its norm."""
    e, i, d = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.num_heads * d, config.num_kv_heads * d
    shapes: Shapes = {f"{prefix}norm.weight": (e,)}
    for n in range(config.num_layers):
        layer = f"{prefix}layers.{n}."
        shapes |= {
            f"{layer}input_layernorm.weight": (e,),
            f"{layer}post_attention_layernorm.weight": (e,),
            f"{layer}self_attn.q_proj.weight": (q, e),
            f"{layer}self_attn.k_proj.weight": (kv, e),
            f"{layer}self_attn.v_proj.weight": (kv, e),
            f"{layer}self_attn.o_proj.weight": (e, q),
            f"{layer}self_attn.q_norm.weight": (d,),
            f"{layer}self_attn.k_norm.weight": (d,),
            f"{layer}mlp.gate_proj.weight": (i, e),
            f"{layer}mlp.up_proj.weight": (i, e),
            f"{layer}mlp.down_proj.weight": (e, i),
        }
    return shapes


def talker_shapes(config: Qwen3TTSConfig) -> Shapes:
    """Every tensor of the main file but the speaker encoder's, with its shape."""
    t, p = config.talker, config.predictor
    e, w, x = t.stack.hidden_size, p.stack.hidden_size, t.text_hidden_size
    shapes: Shapes = {
        f"{TALKER}model.text_embedding.weight": (t.text_vocab_size, x),
        f"{TALKER}text_projection.linear_fc1.weight": (x, x),
        f"{TALKER}text_projection.linear_fc1.bias": (x,),
        f"{TALKER}text_projection.linear_fc2.weight": (e, x),
        f"{TALKER}text_projection.linear_fc2.bias": (e,),
        f"{TALKER}model.codec_embedding.weight": (t.vocab_size, e),
        f"{TALKER}codec_head.weight": (t.vocab_size, e),
    }
    shapes |= stack_shapes(f"{TALKER}model.", t.stack)
    shapes |= stack_shapes(f"{PREDICTOR}model.", p.stack)
    for g in range(t.num_codebooks - 1):
        shapes[f"{PREDICTOR}model.codec_embedding.{g}.weight"] = (p.vocab_size, e)
        shapes[f"{PREDICTOR}lm_head.{g}.weight"] = (p.vocab_size, w)
    if w != e:
        shapes[f"{PREDICTOR}small_to_mtp_projection.weight"] = (w, e)
        shapes[f"{PREDICTOR}small_to_mtp_projection.bias"] = (w,)
    return shapes
