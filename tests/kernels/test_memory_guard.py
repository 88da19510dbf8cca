from __future__ import annotations

import pytest
import torch

from tests.kernels.memory_guard import Guard
from ttsbatch.kernels.launch import jit, tl

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="of the interpreter")


@jit()
def _shift_kernel(x, y, read, write, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(y + place + write, tl.load(x + place + read))


def shifted(read: int, write: int) -> torch.Tensor:
    x, y = torch.arange(16.0), torch.zeros(16)
    _shift_kernel[(1,)](x, y, read, write, N=16)
    return y


def test_a_kernel_within_its_tensors_runs():
    assert shifted(0, 0).tolist() == list(range(16))


@pytest.mark.parametrize(
    ("read", "write", "does"), [(-1, 0, "reads"), (3, 0, "reads"), (0, 2, "writes")]
)
def test_a_kernel_that_leaves_its_tensors_fails(read, write, does):
    with pytest.raises(Exception, match=rf"the kernel {does} {abs(read) + write} values outside"):
        shifted(read, write)


def test_a_wrong_kernel_reads_poison_there_and_writes_nothing(memory_guard: Guard):
    memory_guard.lenient = True
    found = shifted(-2, 3)
    assert found[:3].tolist() == [0, 0, 0]
    assert found[3:5].isnan().all()
    assert found[5:].tolist() == list(range(11))
