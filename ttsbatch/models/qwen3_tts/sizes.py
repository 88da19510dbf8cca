"""The tensors of the main file, from the configuration alone; no torch.

Source: tensor names of the published Qwen3-TTS checkpoints (reference of `qwen-tts` 0.1.1).
"""

from __future__ import annotations

from ttsbatch.models import tensor_specs
from ttsbatch.models.qwen3_tts import codec_specs
from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig
from ttsbatch.models.stack import stack_specs
from ttsbatch.models.tensor_specs import Specs, TensorSpec

TALKER, PREDICTOR = "talker.", "talker.code_predictor."


def num_parameters(config: Qwen3TTSConfig) -> int:
    """Parameters of the main file: talker, predictor, and Base's speaker encoder."""
    own = tensor_specs.num_parameters(talker_specs(config))
    if config.speaker is None:
        return own
    return own + tensor_specs.num_parameters(codec_specs.speaker_specs(config.speaker))


def talker_specs(config: Qwen3TTSConfig) -> Specs:
    """Every tensor of the main file but the speaker encoder's.

    Random stand-ins: matrices keep the variance, norms are 1, tables and biases are small.
    """
    t, p = config.talker, config.predictor
    e, w, x = t.stack.hidden_size, p.stack.hidden_size, t.text_hidden_size
    specs = {
        f"{TALKER}model.text_embedding.weight": _small(t.text_vocab_size, x),
        f"{TALKER}text_projection.linear_fc1.weight": _matrix(x, x),
        f"{TALKER}text_projection.linear_fc1.bias": _small(x),
        f"{TALKER}text_projection.linear_fc2.weight": _matrix(e, x),
        f"{TALKER}text_projection.linear_fc2.bias": _small(e),
        f"{TALKER}model.codec_embedding.weight": _small(t.vocab_size, e),
        f"{TALKER}codec_head.weight": _matrix(t.vocab_size, e),
    }
    specs |= stack_specs(f"{TALKER}model.", t.stack, has_qk_norm=True)
    specs |= stack_specs(f"{PREDICTOR}model.", p.stack, has_qk_norm=True)
    for g in range(t.num_codebooks - 1):
        specs[f"{PREDICTOR}model.codec_embedding.{g}.weight"] = _small(p.vocab_size, e)
        specs[f"{PREDICTOR}lm_head.{g}.weight"] = _matrix(p.vocab_size, w)
    if w != e:
        specs[f"{PREDICTOR}small_to_mtp_projection.weight"] = _matrix(w, e)
        specs[f"{PREDICTOR}small_to_mtp_projection.bias"] = _small(w)
    return specs


def _matrix(rows: int, columns: int) -> TensorSpec:
    return TensorSpec((rows, columns), std=columns**-0.5)


def _small(*shape: int) -> TensorSpec:
    return TensorSpec(shape, std=0.02)
