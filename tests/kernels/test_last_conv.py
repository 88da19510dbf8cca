from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import last_conv as module
from ttsbatch.kernels.reference import last_conv as reference


def case(device, dtype=torch.float32, shape=(2, 200, 12), taps=7):
    x = torch.randn(shape, device=device).to(dtype)
    weight = torch.randn(taps, shape[2], device=device) * 0.5 / (taps * shape[2]) ** 0.5
    return x, weight, torch.full((1,), 0.1, device=device)


@pytest.mark.parametrize("bends", [False, True])
@pytest.mark.parametrize(
    ("shape", "taps"), [((2, 70, 96), 7), ((3, 2, 6), 7), ((1, 130, 128), 3), ((2, 701, 12), 1)]
)
def test_last_conv_equals_its_reference(shape, taps, bends, dtype, device, error):
    inputs = case(device, dtype, shape, taps)
    expected = reference.last_conv(*inputs, bends)
    assert error(module.last_conv(*inputs, bends), expected) <= 2e-6  # in f32 in every dtype
    assert expected.abs().max() < 1.5


def test_reference_is_the_formula(device):
    x = torch.tensor([[[0.5], [0.25], [-1.0]]], device=device)
    weight = torch.tensor([[0.5], [1.0]], device=device)
    found = reference.last_conv(x, weight, torch.tensor([0.125], device=device))
    assert found.tolist() == [[0.625, 0.625, -0.75]]


def test_loud_samples_are_cut_and_nan_is_not_hidden(device):
    x, weight, bias = case(device)
    x[0, 50] = 1e4
    x[1, 60] = torch.nan
    found = module.last_conv(x, weight, bias)
    assert (found[0, 50:57].abs() == 1).all()
    assert found[1].isnan().nonzero().flatten().tolist() == list(range(60, 67))


def test_bent_samples_end_at_one_and_nan_is_not_hidden(device):
    x = torch.tensor([-1e4, -200.0, -50.0, -1.0, 0.0, 1e-4, 0.5, 50.0, 1e4], device=device)
    x[4] = torch.nan
    weight, bias = torch.ones(1, 1, device=device), torch.zeros(1, device=device)
    found = module.last_conv(x[None, :, None], weight, bias, bends=True)[0]
    assert found[:3].tolist() == [-1, -1, -1]
    assert found[7:].tolist() == [1, 1]
    assert found[4].isnan()
    right = x.double().tanh()
    assert (found - right)[[3, 5, 6]].abs().max() <= 2e-7


def test_no_rows_give_no_samples(device):
    x, weight, bias = case(device, shape=(2, 0, 12))
    assert module.last_conv(x, weight, bias).shape == (2, 0)


def test_tensors_of_another_shape_dtype_or_layout_are_rejected(device):
    x, weight, bias = case(device)
    with pytest.raises(ValueError, match=r"weight is \(7, 11\)"):
        module.last_conv(x, weight[:, :11], bias)
    with pytest.raises(ValueError, match=r"bias torch\.float16"):
        module.last_conv(x, weight, bias.half())
    with pytest.raises(ValueError, match="contiguous"):
        module.last_conv(x[:, ::2], weight, bias)


def test_last_conv_is_one_launch(launches, device):
    log = launches(module, "_last_conv_kernel")
    module.last_conv(*case(device))
    assert log == ["_last_conv_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("other=0.0,\n", "other=1.0,\n"),
        ("row >= TAPS - 1 - tap)", "row >= TAPS - tap)"),
        ("(place - (TAPS - 1 - tap) * C)", "(place - (TAPS - 1 - tap) * (C - 1))"),
        ("tl.sum(total, axis=1) + tl.load(bias)", "tl.sum(total, axis=1)"),
        ("mask=in_item)", "mask=in_item & (row > 0))"),
        ("(item * N + first_row) * C", "item * N * C"),
        ("sample > 1.0, 1.0", "sample > 1.0, 2.0"),
        ("tl.exp(-2.0 * tl.abs(sample))", "tl.exp(-1.0 * tl.abs(sample))"),
        ("sample < 0.0, -bent, bent", "sample < 0.0, bent, bent"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    x, weight, bias = case(device, shape=(2, 800, 12))
    x[0, 700] = 1e4 * weight[3].sign()
    shows = [
        error(wrong.last_conv(x, weight, bias, bends), reference.last_conv(x, weight, bias, bends))
        for bends in (False, True)
    ]
    assert max(shows) > 1e-3


@pytest.mark.gpu
def test_offsets_past_two_billion_elements_are_right(device, error):
    x = torch.zeros(3, 8_000_000, 96, dtype=torch.bfloat16, device=device)  # 2.3e9 elements
    x[-1, -1000:] = torch.randn(1000, 96, device=device)
    _, weight, bias = case(device, shape=(1, 1, 96))
    expected = reference.last_conv(x[-1:, -1100:], weight, bias)[:, -1000:]
    assert error(module.last_conv(x, weight, bias)[-1:, -1000:], expected) <= 2e-6
