"""open_speaker(): a card and an engine plan become a model that speaks.

The one place where families meet the slot engine; neither knows the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ttsbatch.models import FAMILIES, fetch_missing
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.types import Demand, ModelCard
from ttsbatch.workers.pool import WorkerPool

ANYTHING = Demand()
Open = Callable[[ModelCard, EnginePlan, bool, Demand], Speaker]


def open_here(
    card: ModelCard, plan: EnginePlan, keep_codes: bool = False, demand: Demand = ANYTHING
) -> Speaker:
    """A model of the slot engine on one device, in this process; see `open_speaker`.

    Raises:
        ModelError: weights missing or damaged.
        EngineError: the device is not there or cannot hold it.
        PlanError: several devices.
    """
    from ttsbatch.engine.device import choose_device, make_current, use_threads_for
    from ttsbatch.engine.speak import CodecLMSpeaker

    load = FAMILIES[card.family].load_codec_lm
    assert load is not None
    device, dtype = choose_device(plan)
    make_current(device)
    use_threads_for(device, card.num_parameters)
    model = load(card, device, dtype, demand)
    return CodecLMSpeaker(model, plan.slots, keep_codes, demand.num_parallel)


def open_speaker(
    card: ModelCard,
    plan: EnginePlan,
    keep_codes: bool = False,
    demand: Demand = ANYTHING,
    opener: Open = open_here,
) -> Speaker:
    """Load a model, ready to speak; weights of a hub id are downloaded first if need be.

    On GPUs each device gets a process of its own.

    Args:
        card: from `open_card`.
        plan: device, dtype, slots.
        keep_codes: waveforms carry their codec codes, where the model has any.
        demand: what the rows of the job ask for: bounds the slots that are chosen, and what a
            family makes room for.
        opener: opens a model of the slot engine on one device; picklable.

    Raises:
        ModelError: weights missing or damaged.
        EngineError: the device is not there or cannot hold it.
        PlanError: a device that this kind of model cannot run on.
    """
    fetch_missing(card)
    load = FAMILIES[card.family].load_speaker
    if load is not None:
        return load(card, plan)
    from ttsbatch.engine.device import choose_devices

    devices, _ = choose_devices(plan)
    if devices[0].type == "cpu":
        return opener(card, plan, keep_codes, demand)
    if demand.num_parallel is not None:
        demand = replace(demand, num_parallel=-(-demand.num_parallel // len(devices)))
    plans = [replace(plan, device=str(device)) for device in devices]
    openers = [partial(opener, card, p, keep_codes, demand) for p in plans]
    return WorkerPool(card, [p.device for p in plans], openers)
