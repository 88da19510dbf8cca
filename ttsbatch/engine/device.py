"""The device and dtype that a plan means."""

from __future__ import annotations

import torch

from ttsbatch.errors import EngineError, PlanError
from ttsbatch.plan import EnginePlan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(plan: EnginePlan) -> tuple[torch.device, torch.dtype]:
    """One device, and bfloat16 on a GPU or float32 on a CPU unless the plan says otherwise.

    Raises:
        PlanError: not a device name, or several devices.
        EngineError: a CUDA device that is not there.
    """
    name = plan.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = "cuda:0"
    if name.startswith("cuda:"):
        numbers = name.removeprefix("cuda:").split(",")
        if not all(n.isdigit() for n in numbers):
            raise PlanError(f"--device is {plan.device!r}; expected auto, cpu, cuda or cuda:N")
        if len(numbers) > 1:
            raise PlanError(
                f"--device is {plan.device!r}; this model runs on one device per run: "
                "start a run for each device over its own part of the corpus"
            )
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(numbers[0]) >= found:
            raise EngineError(f"--device is {plan.device!r}; found {found} CUDA devices")
    elif name != "cpu":
        raise PlanError(f"--device is {plan.device!r}; expected auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if plan.dtype == "auto":
        return device, torch.bfloat16 if device.type == "cuda" else torch.float32
    return device, DTYPES[plan.dtype]


SMALL_MODEL_PARAMETERS = 20_000_000


def use_threads_for(device: torch.device, num_parameters: int) -> None:
    """Give a small model on a CPU one thread: its operations are shorter than a thread's wake-up.

    Measured on two cores with a model of 0.4 M parameters: 45 ms a frame with one thread, 60 to
    800 with two, depending on what else the machine does.
    """
    if device.type == "cpu" and num_parameters < SMALL_MODEL_PARAMETERS:
        torch.set_num_threads(1)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the host, had no memory left for what was asked of it.

    The allocator of torch has an exception of its own; the libraries below it say so in words.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    words = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
    return isinstance(error, RuntimeError) and any(w in str(error) for w in words)
