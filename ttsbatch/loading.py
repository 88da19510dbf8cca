"""open_speaker(): a card and an engine plan become a model that speaks.

The one place where families meet the slot engine; neither knows the other.
"""

from __future__ import annotations

from ttsbatch.models import FAMILIES, fetch_missing
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.types import ModelCard


def open_speaker(
    card: ModelCard, plan: EnginePlan, keep_codes: bool = False, num_parallel: int | None = None
) -> Speaker:
    """Load a model, ready to speak; weights of a hub id are downloaded first if need be.

    Args:
        card: from `open_card`.
        plan: device, dtype, slots.
        keep_codes: waveforms carry their codec codes, where the model has any.
        num_parallel: rows of the job that are worth speaking at once, where known; bounds the
            slots that are chosen.

    Raises:
        ModelError: weights missing or damaged.
        EngineError: the device is not there or cannot hold it.
        PlanError: a device that this kind of model cannot run on.
    """
    fetch_missing(card)
    family = FAMILIES[card.family]
    if family.load_speaker is not None:
        return family.load_speaker(card, plan)
    assert family.load_codec_lm is not None
    from ttsbatch.engine.device import choose_device, use_threads_for
    from ttsbatch.engine.speak import CodecLMSpeaker

    device, dtype = choose_device(plan)
    use_threads_for(device, card.num_parameters)
    model = family.load_codec_lm(card, device, dtype)
    return CodecLMSpeaker(model, plan.slots, keep_codes, num_parallel)
