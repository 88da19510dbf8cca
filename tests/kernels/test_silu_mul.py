from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import silu_mul as module
from ttsbatch.kernels.reference import silu_mul as reference


@pytest.mark.parametrize("shape", [(1, 64), (3, 2, 96), (5, 2 * 1331), (2, 6144)])
def test_product_equals_its_reference(shape, dtype, device, error, tolerance):
    x = torch.randn(shape, device=device, dtype=dtype) * 4
    assert error(module.silu_mul(x), reference.silu_mul(x)) <= tolerance(dtype)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # NumPy, in the interpreter
def test_far_negative_gates_give_zero_not_nan(device):
    x = torch.cat([torch.full((1, 8), -200.0), torch.ones(1, 8)], dim=1).to(device)
    assert not module.silu_mul(x).any()


def test_rows_may_lie_apart(device, error):
    x = torch.randn(4, 3, 64, device=device)[:, 1]
    assert error(module.silu_mul(x), reference.silu_mul(x)) <= 2e-6


def test_product_is_one_launch(launches, device):
    log = launches(module, "_silu_mul_kernel")
    module.silu_mul(torch.randn(4, 6144, device=device))
    assert log == ["_silu_mul_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.exp(-gate)", "tl.exp(gate)"),
        ("row * stride + WIDTH + cols", "row * stride + cols"),
        ("tl.program_id(1) * BLOCK", "tl.program_id(1) * (BLOCK + 1)"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    x = torch.randn(2, 3000, device=device)
    assert error(wrong.silu_mul(x), reference.silu_mul(x)) > 1e-3
