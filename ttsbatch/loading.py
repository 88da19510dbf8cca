"""open_speaker(): a card and an engine plan become a model that speaks.

The one place where families meet the slot engine; neither knows the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from ttsbatch.models import FAMILIES, fetch_missing
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan, gpu_numbers
from ttsbatch.types import Demand, ModelCard
from ttsbatch.workers.pool import WorkerPool
from ttsbatch.workers.standby import Standby

ANYTHING = Demand()
GPU_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA's driver, AMD's, either in WSL
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
    from ttsbatch.engine.device import (
        as_engine_errors,
        choose_device,
        make_current,
        use_threads_for,
    )
    from ttsbatch.engine.speak import CodecLMSpeaker

    load = FAMILIES[card.family].load_codec_lm
    assert load is not None
    device, dtype = choose_device(plan)
    with as_engine_errors(device):
        make_current(device)
        use_threads_for(device, card.num_parameters)
        model = load(card, device, dtype, demand)
        return CodecLMSpeaker(model, plan.slots, keep_codes, demand.num_parallel)


def stand_by(card: ModelCard, plan: EnginePlan) -> Standby | None:
    """Start the processes that GPUs will need, so that they import torch while rows are checked.

    None where there is no sign of a GPU, or the model has no use for one. Whoever calls closes it.
    """
    has_sign = plan.device != "auto" or any(Path(node).exists() for node in GPU_NODES)
    if FAMILIES[card.family].load_codec_lm is None or plan.device == "cpu" or not has_sign:
        return None
    count = max(1, len(gpu_numbers(plan.device)))
    return Standby(count, plan.device, partial(_imported, card.family, plan))


def _imported(family: str, plan: EnginePlan) -> list[str]:
    """`find_devices`, once all is imported that loading will import; `find` of a `Standby`."""
    import_module("ttsbatch.engine.speak")
    import_module(f"ttsbatch.models.{family}.model")
    return find_devices(plan)


def find_devices(plan: EnginePlan) -> list[str]:
    """The names of the devices that a plan means: `cpu`, or one `cuda:N` or more.

    Raises:
        PlanError: not a device name, or a device twice.
        EngineError: a CUDA device that is not there.
    """
    from ttsbatch.engine.device import choose_devices

    return [str(device) for device in choose_devices(plan)[0]]


def open_speaker(
    card: ModelCard,
    plan: EnginePlan,
    keep_codes: bool = False,
    demand: Demand = ANYTHING,
    opener: Open = open_here,
    standby: Standby | None = None,
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
        standby: from `stand_by`; its processes are taken for GPUs.

    Raises:
        ModelError: weights missing or damaged.
        EngineError: the device is not there or cannot hold it.
        PlanError: a device that this kind of model cannot run on.
    """
    fetch_missing(card)
    load = FAMILIES[card.family].load_speaker
    if load is not None:
        return load(card, plan)
    devices = find_devices(plan) if standby is None else standby.devices()
    if devices == ["cpu"]:
        if standby is not None:
            standby.close()  # it would only take memory
        return opener(card, plan, keep_codes, demand)
    if demand.num_parallel is not None:
        demand = replace(demand, num_parallel=-(-demand.num_parallel // len(devices)))
    plans = [replace(plan, device=device) for device in devices]
    openers = [partial(opener, card, p, keep_codes, demand) for p in plans]
    return WorkerPool(card, devices, openers, standby)
