from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from tests.kernels import conv_cases
from tests.kernels.conv_cases import both
from tests.kernels.conv_cases import depthwise_case as case
from ttsbatch.kernels import depthwise_conv as module
from ttsbatch.kernels.causal_conv import causal_conv
from ttsbatch.kernels.reference import depthwise_conv as reference

check = partial(conv_cases.check, module.depthwise_conv, reference.depthwise_conv)


@pytest.mark.parametrize(
    "shape",
    [
        dict(channels=12, dilation=3),
        dict(batch=3, length=67, channels=70, dilation=9),  # tiles of rows and of channels
        dict(batch=3, length=7, channels=64, dilation=9),  # all taps but one before row 0
        dict(length=1, channels=5, taps=1, affine=True),
        dict(length=67, channels=40, taps=3, snake=False, raw=torch.float32),
        dict(channels=24, dilation=3, pointwise=True, residual=None, raw=None),
        dict(length=131, channels=64, dilation=9, pointwise=True, residual=torch.float32),
        dict(batch=1, length=65, channels=100, pointwise=True, affine=True, residual=None),
    ],
    ids=str,
)
def test_depthwise_conv_equals_its_reference(shape, dtype, device, error, tolerance):
    check(*case(device, dtype, **shape), error, 2 * tolerance(dtype))


@pytest.mark.parametrize("dilation", [1, 9])
def test_reference_is_torch_convolution(dilation, device):
    (x, weight, bias), _ = case(device, torch.float32)
    wide = F.pad(x.transpose(1, 2), (6 * dilation, 0)).double()
    packed = weight.t()[:, None].double()
    right = F.conv1d(wide, packed, bias.double(), dilation=dilation, groups=12)
    raw = torch.empty_like(x)
    reference.depthwise_conv(x, weight, bias, dilation=dilation, raw=raw)
    assert torch.allclose(raw, right.transpose(1, 2).float(), atol=1e-5)


def test_two_launches_equal_one_with_a_pointwise_convolution(device, error):
    inputs, options = case(device, torch.float32, pointwise=True, affine=True, residual=None)
    whole = module.depthwise_conv(*inputs, **options)
    point = options.pop("pointwise")
    middle = module.depthwise_conv(*inputs, snake=point.snake)
    parts = causal_conv(middle, point.weight[None], point.bias, **options)
    assert error(whole, parts) <= 4e-6


def test_residual_stream_may_be_updated_in_place(dtype, device):
    inputs, options = case(device, dtype, length=150, pointwise=True, residual=None)
    apart = torch.empty_like(options["residual"])
    module.depthwise_conv(*inputs, **options, raw=apart)
    module.depthwise_conv(*inputs, **options, raw=options["residual"])
    assert torch.equal(options["residual"], apart)


@pytest.mark.parametrize("pointwise", [False, True])
def test_items_never_hear_each_other(pointwise, device):
    inputs, options = case(device, torch.float32, batch=3, dilation=9, pointwise=pointwise)
    whole = module.depthwise_conv(*inputs, **options)
    for item in range(3):
        alone = module.depthwise_conv(inputs[0][item : item + 1], *inputs[1:], **options)
        assert torch.equal(whole[item], alone[0])


def test_a_row_hears_the_past_alone(device):
    inputs, options = case(device, torch.float32, dilation=9, length=70)
    before = module.depthwise_conv(*inputs, **options)
    inputs[0][:, 60] += 1
    changed = (module.depthwise_conv(*inputs, **options) != before).any(dim=2).any(dim=0)
    assert changed.nonzero().flatten().tolist() == [60, 69]


def test_no_rows_give_no_rows(device):
    inputs, options = case(device, torch.float32, length=0)
    assert module.depthwise_conv(*inputs, **options).shape == (2, 0, 12)


def test_misfits_are_rejected(device):
    (x, weight, bias), options = case(device, torch.float32)
    with pytest.raises(ValueError, match="nothing to store"):
        module.depthwise_conv(x, weight, bias)
    with pytest.raises(ValueError, match=r"weight is torch\.float16"):
        module.depthwise_conv(x, weight.half(), bias, **options)
    with pytest.raises(ValueError, match=r"weight is \(7, 11\); expected \(7, 12\)"):
        module.depthwise_conv(x, weight[:, :11], bias, **options)
    with pytest.raises(ValueError, match=r"bias is torch\.float16"):
        module.depthwise_conv(x, weight, bias.half(), **options)
    with pytest.raises(ValueError, match=r"raw is \(2, 39, 12\); expected \(2, 40, 12\)"):
        module.depthwise_conv(x, weight, bias, raw=x[:, 1:])
    with pytest.raises(ValueError, match=r"x is .* contiguous"):
        module.depthwise_conv(x.transpose(0, 1), weight, bias, **options)


def test_pointwise_misfits_are_rejected(device):
    inputs, options = case(device, torch.float32, pointwise=True)
    half = options["pointwise"]._replace(weight=options["pointwise"].weight.half())
    with pytest.raises(ValueError, match=r"pointwise\.weight is torch\.float16"):
        module.depthwise_conv(*inputs, **options | {"pointwise": half})
    inputs, options = case(device, torch.float32, channels=130, pointwise=True)
    with pytest.raises(ValueError, match="130 channels in the same launch"):
        module.depthwise_conv(*inputs, **options)


def test_each_call_is_one_launch(launches, device):
    log = launches(module, "_depthwise_conv_kernel")
    for options in (dict(), dict(pointwise=True, residual=None, raw=None)):
        inputs, options = case(device, torch.float32, **options)
        module.depthwise_conv(*inputs, **options)
    assert log == ["_depthwise_conv_kernel"] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(first_row + row >= back))", "(first_row + row > back))"),
        ("(TAPS - 1 - tap) * dilation", "(TAPS - 1 - tap)"),
        (
            "values = tl.load(source + (place - back * C), mask=seen",
            "values = tl.load(source + (place - back * (C - 1)), mask=seen",
        ),
        (
            "weights = tl.load(weight + tap * C + columns)",
            "weights = tl.load(weight + columns)",
        ),
        ("mask=known, other=0.0)", "mask=known, other=1.0)"),
        ("in_item = first_row + row < N", "in_item = first_row + row < N - 1"),
        ("% tiles_per_item) * ROWS", "% tiles_per_item) * (ROWS + 1)"),
        (".to(tl.int64) * N + first_row", ".to(tl.int64) * N"),
        ("(program % num_column_tiles) * WIDE", "(program % num_column_tiles) * 16"),
        ("        residual += start * C", "        residual += 0"),
        ("        raw += start * C", "        raw += 0"),
        ("bias = point_bias", "bias = bias"),
        ("point_alpha, point_inv_beta, C, C)", "alpha, inv_beta, C, C)"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    shows = False
    for more in (
        dict(channels=12, pointwise=True, length=140),
        dict(channels=100, length=70),
        dict(channels=64, length=70),
    ):
        inputs, rest = case(device, torch.float32, dilation=3, residual=None, raw=None, **more)
        expected = both(reference.depthwise_conv, inputs, rest)
        found = both(wrong.depthwise_conv, inputs, rest)
        shows = any(error(a, b) > 1e-3 for a, b in zip(found, expected, strict=True))
        if shows:
            break
    assert shows


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [1024, 512, 256, 128, 64, 32])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_widths_of_the_published_vae_equal_the_reference(channels, kind, device, error):
    bound = {torch.float16: 4e-3, torch.bfloat16: 2e-2}[kind]
    options = dict(channels=channels, length=333, batch=3, dilation=9)
    check(*case(device, kind, **options), error, bound)
    if channels <= module.WIDEST_POINTWISE:
        options |= dict(pointwise=True, residual=None, affine=True, raw=None)
        check(*case(device, kind, **options), error, bound)


@pytest.mark.gpu
@pytest.mark.parametrize("pointwise", [False, True])
def test_offsets_past_two_billion_elements_are_right(pointwise, device, error):
    options = dict(batch=1, length=1000, channels=64, dilation=9, pointwise=pointwise)
    inputs, options = case(device, torch.float16, **options)
    x = torch.zeros(3, 12_000_000, 64, dtype=torch.float16, device=device)  # 2.3e9 elements
    x[-1, -1000:] = inputs[0][0]
    found = module.depthwise_conv(x, *inputs[1:], **options)[-1:, -1000:]
    assert error(found.contiguous(), reference.depthwise_conv(*inputs, **options)) <= 4e-3
