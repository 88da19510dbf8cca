"""The device and dtype that a plan means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ttsbatch.errors import EngineError, PlanError, TTSBatchError
from ttsbatch.kernels.launch import unlaunchable
from ttsbatch.plan import EnginePlan, gpu_numbers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_devices(plan: EnginePlan) -> tuple[list[torch.device], torch.dtype]:
    """The devices, and bfloat16 on GPUs or float32 on a CPU unless the plan says otherwise.

    Raises:
        PlanError: not a device name, or a device twice.
        EngineError: a CUDA device that is not there.
    """
    name = plan.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    devices = [torch.device("cpu")]
    if numbers := gpu_numbers(name):
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if max(numbers) >= found:
            raise EngineError(f"--device is {plan.device!r}; found {found} CUDA devices")
        devices = [torch.device("cuda", n) for n in numbers]
    if plan.dtype == "auto":
        return devices, torch.bfloat16 if devices[0].type == "cuda" else torch.float32
    return devices, DTYPES[plan.dtype]


def choose_device(plan: EnginePlan) -> tuple[torch.device, torch.dtype]:
    """The one device of a plan, and its dtype as in `choose_devices`.

    Raises:
        PlanError: not a device name, or several devices.
        EngineError: a CUDA device that is not there.
    """
    devices, dtype = choose_devices(plan)
    if len(devices) > 1:
        raise PlanError(f"--device is {plan.device!r}; one device is measured at a time")
    return devices[0], dtype


def make_current(device: torch.device) -> None:
    """Make a GPU the one that this thread means where it names none.

    A capture waits for the current device whatever stream it is given, and waiting for the first
    GPU opens a context there, which takes memory from whoever works on it.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


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

    The allocator of torch has an exception of its own; the libraries below it say so in words. An
    error that was raised from such a one is one too.
    """
    words = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't allocate memory")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(cause, RuntimeError) and any(w in str(cause) for w in words):
            return True
        cause = cause.__cause__
    return False


@contextmanager
def as_engine_errors(device: torch.device) -> Iterator[None]:
    """Turn what torch, its libraries and Triton say of a device into an EngineError, in one line.

    Other errors are bugs and stay what they are.
    """
    try:
        yield
    except Exception as e:
        if isinstance(e, TTSBatchError) or not is_device_error(e):
            raise
        told = str(e).strip().splitlines()
        raise EngineError(f"{device}: {told[0] if told else type(e).__name__}") from e


def is_device_error(error: Exception) -> bool:
    """Whether an error is the device's: lost, busy, out of memory, a kernel that failed there."""
    if isinstance(error, (torch.AcceleratorError, *unlaunchable)) or is_out_of_memory(error):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in _DEVICE_WORDS)


_DEVICE_WORDS = ("CUDA", "CUBLAS_STATUS", "cuDNN", "CUDNN_STATUS", "NVIDIA driver")
