"""Which device and dtype a plan means."""

from __future__ import annotations

import pytest
import torch

from ttsbatch.engine.device import choose_device, choose_devices
from ttsbatch.errors import EngineError, PlanError
from ttsbatch.plan import EnginePlan


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """As on a machine with this many GPUs."""
    count = int(request.param)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return count


def with_gpus(*counts: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("gpus", counts, indirect=True)


@with_gpus(0)
def test_auto_without_a_gpu_is_the_cpu_in_float32(gpus: int) -> None:
    assert choose_device(EnginePlan()) == (torch.device("cpu"), torch.float32)


@with_gpus(1, 4)
@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_a_gpu_is_used_in_bfloat16(gpus: int, name: str) -> None:
    assert choose_device(EnginePlan(device=name)) == (torch.device("cuda:0"), torch.bfloat16)


@with_gpus(4)
def test_a_gpu_is_chosen_by_number(gpus: int) -> None:
    assert choose_device(EnginePlan(device="cuda:3"))[0] == torch.device("cuda:3")


@with_gpus(4)
def test_the_cpu_is_used_where_asked_for_beside_gpus(gpus: int) -> None:
    assert choose_device(EnginePlan(device="cpu")) == (torch.device("cpu"), torch.float32)


@with_gpus(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_a_dtype_that_is_asked_for_wins(
    gpus: int, device: str, dtype: str, expected: torch.dtype
) -> None:
    assert choose_device(EnginePlan(device=device, dtype=dtype))[1] == expected


@with_gpus(0, 2)
def test_a_gpu_that_is_not_there_says_how_many_are(gpus: int) -> None:
    with pytest.raises(EngineError, match=rf"'cuda:2'; found {gpus} CUDA devices"):
        choose_device(EnginePlan(device="cuda:2"))


@with_gpus(2)
def test_several_devices_are_taken_in_the_order_given(gpus: int) -> None:
    devices, dtype = choose_devices(EnginePlan(device="cuda:1,0"))
    assert devices == [torch.device("cuda:1"), torch.device("cuda:0")]
    assert dtype == torch.bfloat16


@with_gpus(2)
def test_one_of_several_devices_that_is_not_there_is_named_with_them(gpus: int) -> None:
    with pytest.raises(EngineError, match=r"'cuda:0,2'; found 2 CUDA devices"):
        choose_devices(EnginePlan(device="cuda:0,2"))


@with_gpus(2)
def test_several_devices_are_refused_where_one_is_measured(gpus: int) -> None:
    with pytest.raises(PlanError, match=r"'cuda:0,1'; one device is measured"):
        choose_device(EnginePlan(device="cuda:0,1"))


@with_gpus(2)
@pytest.mark.parametrize(
    "name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0,", "cuda:1,1", "mps", "CPU", ""]
)
def test_other_names_are_refused_with_what_is_expected(gpus: int, name: str) -> None:
    with pytest.raises(PlanError, match="expected auto, cpu, cuda, cuda:N or cuda:N,M"):
        choose_device(EnginePlan(device=name))
