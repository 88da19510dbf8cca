"""open_speaker(): a card and an engine plan become a model that speaks.

The one place where families meet the slot engine; neither knows the other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ttsbatch.models import FAMILIES, fetch_missing
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.types import ModelCard
from ttsbatch.workers.pool import WorkerPool


def open_speaker(
    card: ModelCard, plan: EnginePlan, keep_codes: bool = False, num_parallel: int | None = None
) -> Speaker:
    """Load a model, ready to speak; weights of a hub id are downloaded first if need be.

    On GPUs each device gets a process of its own.

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
    from ttsbatch.engine.device import choose_devices

    devices, _ = choose_devices(plan)
    if devices[0].type == "cpu":
        return open_here(card, plan, keep_codes, num_parallel)
    share = None if num_parallel is None else -(-num_parallel // len(devices))
    names = [str(device) for device in devices]
    return WorkerPool(
        card,
        names,
        [partial(open_here, card, replace(plan, device=n), keep_codes, share) for n in names],
    )


def open_here(
    card: ModelCard, plan: EnginePlan, keep_codes: bool = False, num_parallel: int | None = None
) -> Speaker:
    """A model of the slot engine on one device, in this process; see `open_speaker`.

    Raises:
        ModelError: weights missing or damaged.
        EngineError: the device is not there or cannot hold it.
        PlanError: several devices.
    """
    from ttsbatch.engine.device import choose_device, use_threads_for
    from ttsbatch.engine.speak import CodecLMSpeaker

    load = FAMILIES[card.family].load_codec_lm
    assert load is not None
    device, dtype = choose_device(plan)
    use_threads_for(device, card.num_parameters)
    return CodecLMSpeaker(load(card, device, dtype), plan.slots, keep_codes, num_parallel)
