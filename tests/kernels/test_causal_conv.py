from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from tests.kernels import conv_cases
from tests.kernels.conv_cases import both, with_tensors
from ttsbatch.kernels import causal_conv as module
from ttsbatch.kernels.bench import causal_conv as bench
from ttsbatch.kernels.causal_conv_tiles import TILES, Tile, takes_pointwise, tile_for
from ttsbatch.kernels.reference import causal_conv as reference

SPLIT = Tile(rows=32, columns=64, more_columns=32, depth=32, num_warps=4)  # 96 channels in one
BULK = Tile(rows=32, columns=64, more_columns=32, depth=32, num_warps=4, bulk=True)

UPSAMPLING = {  # rows per row, of the two published codecs
    (width, rate * channels, 2): rate
    for widths, rates in (
        ((1536, 768, 384, 192, 96), (8, 5, 4, 3)),
        ((2048, 1024, 512, 256, 128, 64, 32), (8, 6, 5, 2, 2, 2)),
    )
    for (width, channels), rate in zip(pairwise(widths), rates, strict=True)
}
CODEC = [
    (1024, 1536, 7),
    *list(UPSAMPLING)[:4],
    *((width, width, taps) for width in (768, 384, 192, 96) for taps in (7, 1)),
]
VAE_DECODER = [
    (64, 2048, 7),
    *list(UPSAMPLING)[4:],
    *((width, width, 1) for width in (1024, 512, 256)),  # fewer channels: with `depthwise_conv`
]
VAE_ENCODER = [  # but for its first one, from a single channel
    *((rate * width, 2 * width, 2) for width, rate in ((128, 2), (256, 5), (512, 8), (1024, 8))),
    (2048, 64, 3),
]


def case(device, dtype, batch=2, length=40, width=12, channels=12, rate=1, taps=7, **options):
    """Inputs, and options as `with_tensors` takes them."""
    x = torch.randn(batch, length, width, device=device).to(dtype)
    weight = torch.randn(taps, width, rate * channels, device=device) / (taps * width) ** 0.5
    bias = torch.randn(channels, device=device)
    shape = batch, length * rate, channels
    return (x, weight.to(dtype), bias), with_tensors(options, shape, dtype, device)


check = partial(conv_cases.check, module.causal_conv, reference.causal_conv)


SHAPES = [
    dict(width=12, channels=12, dilation=3),
    dict(width=12, channels=12, taps=1, residual=None, raw=None),
    dict(width=6, channels=3, rate=5, taps=2, raw=None),
    dict(batch=3, length=7, width=24, channels=48, dilation=9),  # all taps but one before row 0
    dict(length=1, width=20, channels=32, residual=torch.float32, raw=torch.float32),
    dict(length=67, width=32, channels=40, taps=3, snake=False, raw=torch.float32),
    dict(length=65, width=96, channels=96, dilation=9, residual=None, raw=None),
    dict(width=24, channels=24, dilation=3, pointwise=True, residual=None, raw=None),
    dict(width=12, channels=12, taps=1, affine=True, residual=torch.float32, raw=torch.float32),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_causal_conv_equals_its_reference(shape, dtype, device, error, tolerance):
    check(*case(device, dtype, **shape), error, 2 * tolerance(dtype))


@pytest.mark.parametrize(
    "shape",
    [
        dict(batch=3, width=64, channels=96, dilation=9),
        dict(length=70, width=96, channels=48, rate=4, taps=2, raw=None),
        dict(length=33, width=32, channels=96, pointwise=True, residual=None, raw=None),
        dict(width=96, channels=104, taps=1, residual=None),
    ],
    ids=str,
)
@pytest.mark.parametrize("tile", [SPLIT, BULK], ids=["pointers", "bulk"])
def test_split_tiles_equal_the_reference(shape, tile, dtype, device, error, tolerance):
    if "pointwise" in shape and device.type == "cuda":
        pytest.skip("such a tile is refused on a GPU, as another test shows")
    check(*case(device, dtype, **shape), error, 2 * tolerance(dtype), tile=tile)


def test_tiles_that_cross_taps_equal_the_reference(dtype, device, error, tolerance):
    tile = Tile(rows=32, columns=64, more_columns=32, depth=64, num_warps=4)
    options = dict(width=96, channels=96, dilation=3)
    check(*case(device, dtype, **options), error, 2 * tolerance(dtype), tile=tile)


def test_reference_is_torch_convolution(device):
    weight, bias = torch.randn(10, 6, 7, device=device), torch.randn(10, device=device)
    x = torch.randn(2, 6, 40, device=device)
    wide = F.pad(x, (18, 0)).double(), weight.double(), bias.double()  # a GPU's float is TF32
    expected = F.conv1d(*wide, dilation=3).transpose(1, 2).float()
    raw = torch.empty(2, 40, 10, device=device)
    rows = x.transpose(1, 2).contiguous()
    reference.causal_conv(rows, module.pack_conv(weight), bias, dilation=3, raw=raw)
    assert torch.allclose(raw, expected, atol=1e-5)


@pytest.mark.parametrize("stride", [2, 5])
def test_two_taps_are_a_transposed_convolution_without_its_tail(stride, device):
    weight = torch.randn(6, 4, 2 * stride, device=device)
    bias, x = torch.randn(4, device=device), torch.randn(2, 6, 11, device=device)
    wide = F.conv_transpose1d(x.double(), weight.double(), bias.double(), stride)
    expected = wide[..., : 11 * stride].transpose(1, 2).float()
    raw = torch.empty(2, 11 * stride, 4, device=device)
    packed = module.pack_upsampling(weight, stride)
    module.causal_conv(x.transpose(1, 2).contiguous(), packed, bias, raw=raw)
    assert torch.allclose(raw, expected, atol=1e-5)


def test_two_launches_equal_one_with_a_pointwise_convolution(device, error):
    inputs, options = case(device, torch.float32, pointwise=True, residual=None)
    point = options.pop("pointwise")
    after = options.pop("snake")
    whole = module.causal_conv(*inputs, snake=after, pointwise=point, **options)
    middle = module.causal_conv(*inputs, snake=point.snake)
    parts = module.causal_conv(middle, point.weight[None], point.bias, snake=after, **options)
    assert error(whole, parts) <= 4e-6


def test_residual_stream_may_be_updated_in_place(dtype, device, error, tolerance):
    inputs, options = case(device, dtype, length=90, residual=None)
    apart = torch.empty_like(options["residual"])
    module.causal_conv(*inputs, **options, raw=apart)
    module.causal_conv(*inputs, **options, raw=options["residual"])
    assert torch.equal(options["residual"], apart)


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy, about infinity
def test_large_phases_and_broken_values_stay_as_sine_has_them(device):
    weight, bias = torch.ones(1, 1, 1, device=device), torch.zeros(1, device=device)
    table = torch.ones(1, device=device), torch.ones(1, device=device)
    x = torch.tensor([1e3, -777.25, 1e12, torch.inf, torch.nan], device=device)[None, :, None]
    found = module.causal_conv(x, weight, bias, snake=table)[0, :, 0]
    expected = x[0, :2, 0].double() + x[0, :2, 0].double().sin() ** 2
    assert torch.allclose(found[:2].double(), expected, atol=3e-4)
    assert abs(found[2] - 1e12) <= 1e6
    assert not found[3].isfinite()
    assert found[4].isnan()


def test_items_never_hear_each_other(device):
    inputs, options = case(device, torch.float32, batch=3)
    whole = module.causal_conv(*inputs, **options)
    for item in range(3):
        alone = module.causal_conv(inputs[0][item : item + 1], *inputs[1:], **options)
        assert torch.equal(whole[item], alone[0])


def test_no_rows_give_no_rows(device):
    inputs, options = case(device, torch.float32, length=0, rate=2, taps=2)
    assert module.causal_conv(*inputs, **options).shape == (2, 0, 12)


def test_misfits_are_rejected(device):
    (x, weight, bias), options = case(device, torch.float32)
    with pytest.raises(ValueError, match="nothing to store"):
        module.causal_conv(x, weight, bias)
    with pytest.raises(ValueError, match=r"weight is \(7, 12, 12\) torch\.float16"):
        module.causal_conv(x, weight.half(), bias, **options)
    with pytest.raises(ValueError, match=r"bias is torch\.float16"):
        module.causal_conv(x, weight, bias.half(), **options)
    with pytest.raises(ValueError, match=r"raw is \(2, 39, 12\); expected \(2, 40, 12\)"):
        module.causal_conv(x, weight, bias, raw=x[:, 1:])
    with pytest.raises(ValueError, match=r"x is .* contiguous"):
        module.causal_conv(x.transpose(0, 1), weight, bias, **options)
    with pytest.raises(ValueError, match="don't divide a weight of 12 by 12"):
        module.causal_conv(x, weight, bias, **options, tile=BULK)
    with pytest.raises(ValueError, match="kernel of 7 with stride 2"):
        module.pack_upsampling(torch.zeros(3, 4, 7), 2)


def test_pointwise_misfits_are_rejected(device):
    inputs, options = case(device, torch.float32, width=32, channels=200, pointwise=True)
    with pytest.raises(ValueError, match="1x1 convolution of 200 channels"):
        module.causal_conv(*inputs, **options, tile=BULK)
    inputs, options = case(device, torch.float32, pointwise=True)
    options["pointwise"] = options["pointwise"]._replace(weight=torch.zeros(12, 11, device=device))
    with pytest.raises(ValueError, match=r"pointwise\.weight is \(12, 11\)"):
        module.causal_conv(*inputs, **options)


def test_each_call_is_one_launch(launches, device):
    log = launches(module, "_causal_conv_kernel")
    for options in (dict(), dict(pointwise=True, residual=None, raw=None)):
        inputs, options = case(device, torch.float32, **options)
        module.causal_conv(*inputs, **options)
    assert log == ["_causal_conv_kernel"] * 2


@pytest.mark.parametrize("shapes", [CODEC, VAE_DECODER, VAE_ENCODER])
def test_published_codecs_have_a_tile_of_their_own_for_each_shape(shapes):
    for width, columns, taps in shapes:
        assert (width, columns, taps) in TILES
        tile = tile_for(width, columns, taps)
        assert width % tile.depth == 0
        assert columns % (tile.columns + tile.more_columns) == 0


@pytest.mark.parametrize("kib", [227, 163, 99])  # H100 and B200, A100, other GPUs
def test_every_tile_fits_into_the_shared_memory_that_there_is(kib):
    for tile in TILES.values():
        fitted = tile.fitted(2, kib * 1024)
        assert fitted.shared_bytes(2) <= kib * 1024
        assert 2 <= fitted.num_stages <= tile.num_stages
        assert replace(fitted, num_stages=tile.num_stages) == tile
        more = replace(fitted, num_stages=fitted.num_stages + 1)
        assert fitted == tile or more.shared_bytes(2) > kib * 1024
        assert fitted == tile or kib < 227


def test_a_launch_takes_the_stages_that_fit(device, error, monkeypatch):
    launched, kernel = [], module._causal_conv_kernel
    monkeypatch.setattr(module, "shared_bytes", lambda tensor: 2 * stage + 1024)
    tile = replace(BULK, num_stages=4)
    stage = (tile.rows + tile.columns + tile.more_columns) * tile.depth * 4

    class Kernel:
        def __getitem__(self, grid):
            def launch(*args, num_stages, **options):
                launched.append(num_stages)
                return kernel[grid](*args, num_stages=num_stages, **options)

            return launch

    monkeypatch.setattr(module, "_causal_conv_kernel", Kernel())
    check(*case(device, torch.float32, width=32, channels=96, raw=None), error, 1e-4, tile=tile)
    assert launched == [2]


def test_benched_convolutions_are_those_of_the_published_codecs():
    for benched, shapes in ((bench.layers(), CODEC), (bench.vae_layers(), VAE_DECODER)):
        layers = list(benched)
        found = {(layer.width, layer.columns, layer.taps) for layer in layers}
        in_one_launch = {(192, 192, 1)}  # with the convolution before it
        assert found == set(shapes) - in_one_launch
        for layer in layers[-2:]:
            inputs, options = layer.call(2, 1, "cpu")
            activated = reference.causal_conv(*inputs, **options)
            assert activated.shape == (2, layer.rows_per_frame * layer.rate, layer.channels)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(first_row + row >= shift))[:, None]", "(first_row + row > shift))[:, None]"),
        ("first_row + row[:, None] >= shift[None, :]", "first_row + row[:, None] > shift[None, :]"),
        ("(index % CIN)[None, :]", "(index % CIN // 2)[None, :]"),
        ("seen & (index < TAPS * CIN)[None, :]", "seen & (index < CIN)[None, :]"),
        ("first_row - shift, at % CIN", "first_row - tap, at % CIN"),
        ("weight.load([at, first_column])", "weight.load([at, 0])"),
        ("more_weight.load([at, first_column + WIDE])", "more_weight.load([at, first_column])"),
        ("more_columns = first_column + WIDE", "more_columns = first_column"),
        ("in_item = first_row + row < N", "in_item = first_row + row < N - 1"),
        ("item.to(tl.int64) * N + first_row", "item.to(tl.int64) * N"),
        ("    if raw is not None:\n        raw += start", "    if False:\n        raw += start"),
        ("tl.dot(more_middle, part, total,", "tl.dot(more_middle, part, total * 2,"),
        ("bias = point_bias", "bias = bias"),
        (
            "square(point_weight, columns, more_columns,",
            "square(point_weight, columns, more_columns - 1,",
        ),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    options = dict(length=34, width=32, channels=96, dilation=3, residual=None, raw=None)
    shows = False
    for tile, more in (
        (SPLIT, dict(pointwise=True)),
        (BULK, dict(pointwise=True)),
        (BULK, dict(channels=192)),
        (None, dict(width=12, channels=12)),
    ):
        inputs, rest = case(device, torch.float32, **options | more)
        expected = both(reference.causal_conv, inputs, rest)
        found = both(wrong.causal_conv, inputs, rest | {"tile": tile})
        shows = shows or any(error(a, b) > 1e-3 for a, b in zip(found, expected, strict=True))
        if shows:
            break
    assert shows


@pytest.mark.gpu
@pytest.mark.parametrize("shape", sorted(TILES), ids=str)
def test_tiles_of_the_published_codec_equal_the_reference(shape, device, error):
    width, columns, taps = shape
    rate = UPSAMPLING.get(shape, 1)
    channels = columns // rate
    options = dict(width=width, channels=channels, rate=rate, taps=taps, length=333, raw=None)
    options |= {7: dict(dilation=9), 1: dict(residual=None)}.get(taps, {})
    check(*case(device, torch.bfloat16, **options), error, 2e-2)
    if taps == 7 and width == channels and takes_pointwise(tile_for(*shape), channels):
        options |= dict(pointwise=True, residual=None)
        check(*case(device, torch.bfloat16, **options), error, 2e-2)


@pytest.mark.gpu
def test_a_tile_that_triton_gets_wrong_is_refused(device):
    options = dict(width=96, channels=96, pointwise=True, raw=None)
    inputs, options = case(device, torch.bfloat16, **options)
    with pytest.raises(ValueError, match="1x1"):
        module.causal_conv(*inputs, **options, tile=Tile(64, 64, 32, depth=32))


@pytest.mark.gpu
@pytest.mark.parametrize("bulk", [True, False])
def test_offsets_past_two_billion_elements_are_right(bulk, device, error):
    tile = Tile(128, 64, 32, depth=32, num_warps=4, bulk=bulk)
    inputs, options = case(device, torch.bfloat16, batch=1, length=1000, width=96, channels=96)
    x = torch.zeros(3, 8_000_000, 96, dtype=torch.bfloat16, device=device)  # 2.3e9 elements
    x[-1, -1000:] = inputs[0][0]
    found = module.causal_conv(x, *inputs[1:], **options, tile=tile)[-1:, -1000:]
    assert error(found.contiguous(), reference.causal_conv(*inputs, **options)) <= 2e-2
