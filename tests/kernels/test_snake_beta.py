from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import snake_beta as module
from ttsbatch.kernels.reference import snake_beta as reference


def parameters(channels, device):
    alpha = torch.randn(channels, device=device).exp()
    return alpha, torch.randn(channels, device=device).exp()


@pytest.mark.parametrize("shape", [(1, 3, 1), (2, 6, 40), (3, 5, 257), (1, 2, 4099)])
def test_snake_beta_equals_its_reference(shape, dtype, device, error, tolerance):
    x = torch.randn(shape, device=device, dtype=dtype) * 3
    alpha, inv_beta = parameters(shape[1], device)
    found = module.snake_beta(x, alpha, inv_beta)
    assert error(found, reference.snake_beta(x, alpha, inv_beta)) <= tolerance(dtype)


def test_reference_is_the_formula_per_channel(device):
    x = torch.tensor([[[0.5, -1.0], [2.0, 0.25]]], device=device)
    alpha = torch.tensor([1.0, 3.0], device=device)
    inv_beta = torch.tensor([2.0, 0.5], device=device)
    found = reference.snake_beta(x, alpha, inv_beta)
    expected = torch.stack(
        [x[0, 0] + 2 * torch.sin(x[0, 0]) ** 2, x[0, 1] + 0.5 * torch.sin(3 * x[0, 1]) ** 2]
    )
    assert torch.allclose(found[0], expected, atol=1e-6)


def test_rows_may_have_a_cut_off_tail(device, error):
    x = torch.randn(2, 3, 70, device=device)[..., :64]
    alpha, inv_beta = parameters(3, device)
    found = module.snake_beta(x, alpha, inv_beta)
    assert found.is_contiguous()
    assert error(found, reference.snake_beta(x, alpha, inv_beta)) <= 2e-6


def test_input_is_not_changed(device):
    x = torch.randn(1, 2, 9, device=device)
    before = x.clone()
    module.snake_beta(x, *parameters(2, device))
    reference.snake_beta(x, *parameters(2, device))
    assert torch.equal(x, before)


def test_empty_input_gives_empty_output(device):
    assert (
        module.snake_beta(torch.zeros(2, 3, 0, device=device), *parameters(3, device)).numel() == 0
    )


def test_strided_elements_are_rejected(device):
    x = torch.randn(2, 8, 3, device=device).transpose(1, 2)
    with pytest.raises(ValueError, match="contiguous rows"):
        module.snake_beta(x, *parameters(3, device))


def test_parameters_of_another_size_or_dtype_are_rejected(device):
    x = torch.randn(2, 3, 8, device=device)
    alpha, inv_beta = parameters(3, device)
    with pytest.raises(ValueError, match=r"alpha is \(4,\)"):
        module.snake_beta(x, torch.ones(4, device=device), inv_beta)
    with pytest.raises(ValueError, match=r"inv_beta is .* torch\.float16"):
        module.snake_beta(x, alpha, inv_beta.half())


def test_snake_beta_is_one_launch(launches, device):
    log = launches(module, "_snake_beta_kernel")
    module.snake_beta(torch.randn(2, 3, 100, device=device), *parameters(3, device))
    assert log == ["_snake_beta_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bump * bump *", "bump *"),
        ("channel = row % C", "channel = batch % C"),
        ("inside = cols < N", "inside = cols < N - 1"),
        ("batch * x_batch_stride", "batch * C * N"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    x = torch.randn(2, 3, 70, device=device)[..., :64]
    alpha, inv_beta = parameters(3, device)
    expected = reference.snake_beta(x, alpha, inv_beta)
    assert error(wrong.snake_beta(x, alpha, inv_beta), expected) > 1e-3


@pytest.mark.gpu
def test_offsets_past_two_billion_elements_are_right(device):
    x = torch.zeros(3, 96, 8_000_000, dtype=torch.bfloat16, device=device)  # 2.3e9 elements
    x[-1, -1, -1000:] = torch.randn(1000, device=device)
    alpha, inv_beta = parameters(96, device)
    found = module.snake_beta(x, alpha, inv_beta)[-1:, -1:, -1000:]
    expected = reference.snake_beta(x[-1:, -1:, -1000:], alpha[-1:], inv_beta[-1:])
    assert torch.allclose(found.float(), expected.float(), rtol=1e-2, atol=1e-2)
