from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import rms_norm as module
from ttsbatch.kernels.reference import rms_norm as reference


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 48), (5, 257), (4, 1024)])
def test_rms_norm_equals_its_reference(rows, width, dtype, device, error, tolerance):
    x = torch.randn(rows, width, device=device, dtype=dtype) * 3
    weight = torch.randn(width, device=device, dtype=dtype)
    found = module.rms_norm(x, weight, 1e-6)
    assert error(found, reference.rms_norm(x, weight, 1e-6)) <= tolerance(dtype)


@pytest.mark.parametrize("shape", [(1, 64), (3, 2, 48), (5, 257)])
def test_add_rms_norm_equals_its_reference(shape, dtype, device, error, tolerance):
    x = torch.randn(shape, device=device, dtype=dtype)
    residual = torch.randn(shape, device=device, dtype=dtype) * 20
    weight = torch.randn(shape[-1], device=device, dtype=dtype)
    before = residual.clone()
    normed, total = module.add_rms_norm(x, residual, weight, 1e-6)
    right, right_total = reference.add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, right_total)
    assert torch.equal(residual, before)
    assert error(normed, right) <= tolerance(dtype)


def test_rows_may_lie_apart(device, error):
    x = torch.randn(4, 3, 64, device=device)[:, 1]
    weight = torch.randn(64, device=device)
    found = module.rms_norm(x, weight, 1e-6)
    assert found.is_contiguous()
    assert error(found, reference.rms_norm(x, weight, 1e-6)) <= 2e-6


def test_row_of_zeros_stays_zero(device):
    weight = torch.randn(64, device=device)
    assert not module.rms_norm(torch.zeros(2, 64, device=device), weight, 1e-6).any()


def test_strided_elements_are_rejected(device):
    x = torch.randn(64, 4, device=device).T
    with pytest.raises(ValueError, match="contiguous rows"):
        module.rms_norm(x, torch.ones(64, device=device), 1e-6)


def test_each_norm_is_one_launch(launches, device):
    log = launches(module, "_rms_norm_kernel")
    x, weight = torch.randn(4, 64, device=device), torch.ones(64, device=device)
    module.rms_norm(x, weight, 1e-6)
    module.add_rms_norm(x, x, weight, 1e-6)
    assert log == ["_rms_norm_kernel"] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ E + EPS", "/ BLOCK + EPS"),
        ("mask=inside)\n        value = rounded", "mask=cols < E - 1)\n        value = rounded"),
        ("value += tl.load", "value -= tl.load"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    x, residual = torch.randn(2, 3, 48, device=device)
    weight = torch.randn(48, device=device)
    expected = reference.add_rms_norm(x, residual, weight, 1e-6)
    found = wrong.add_rms_norm(x, residual, weight, 1e-6)
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) > 1e-3
