from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import local_attention as module
from ttsbatch.kernels.local_attention import Tile
from ttsbatch.kernels.reference import local_attention as reference

SHAPES = [  # rows, tokens, first query, queries, query heads, key/value heads, head width
    (2, 11, 0, 11, 16, 2, 128),
    (3, 11, 7, 4, 16, 2, 128),
    (2, 5, 0, 5, 16, 2, 128),
    (3, 5, 0, 1, 16, 2, 128),
    (1, 1, 0, 1, 4, 2, 16),
    (4, 16, 3, 13, 3, 1, 32),
    (2, 16, 0, 16, 10, 2, 16),  # 5 heads a group: blocks end within a head
    (5, 7, 2, 3, 3, 3, 64),
    (1, 33, 0, 33, 2, 1, 16),
]


def case(rows, tokens, first, queries, num_q, num_kv, width, dtype, device):
    """Slices of a packed projection, as a model has them; NaN in all that is not theirs."""
    asked = slice(first, first + queries)
    packed = torch.full((tokens + 2, rows, (num_q + 2 * num_kv + 2) * width), torch.nan)
    packed = packed.to(device=device, dtype=dtype)
    q = packed[1:-1][asked, :, width : (1 + num_q) * width]
    kv = packed[1:-1, :, (1 + num_q) * width : -width]
    q.normal_()
    kv.normal_()
    angles = torch.rand(tokens, width // 2, device=device) * 6
    return {"q": q, "kv": kv, "cos": angles.cos(), "sin": angles.sin(), "first": first}


def exactly(arguments):
    """The reference in f64 on heads turned in f32 and rounded, in the dtype of a run."""
    dtype, (cos, sin) = arguments["q"].dtype, (arguments["cos"], arguments["sin"])
    width, num_queries = 2 * cos.shape[1], len(arguments["q"])
    half_of_kv = arguments["kv"].shape[2] // 2
    asked = slice(arguments["first"], arguments["first"] + num_queries)

    def turned(x, c, s):
        heads = x.unflatten(2, (-1, width))
        return reference._turn(heads, c, s).flatten(2).double()

    keys = turned(arguments["kv"][..., :half_of_kv], cos, sin)
    still = torch.ones_like(cos, dtype=torch.float64), torch.zeros_like(cos, dtype=torch.float64)
    kv = torch.cat([keys, arguments["kv"][..., half_of_kv:].double()], dim=2)
    q = turned(arguments["q"], cos[asked], sin[asked])
    return reference.local_attention(q, kv, *still, arguments["first"]).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_equals_the_reference(shape, dtype, device, error, tolerance):
    arguments = case(*shape, dtype, device)
    found = module.local_attention(**arguments)
    assert found.is_contiguous()
    # A turned head differs by a rounding where products were contracted.
    assert error(found, reference.local_attention(**arguments)) <= 2 * tolerance(dtype)
    assert error(found, exactly(arguments)) <= tolerance(dtype)


def test_reference_is_attention_by_hand(device):
    arguments = case(2, 5, 1, 3, 4, 2, 16, torch.float64, device)
    kv = arguments["kv"].unflatten(2, (2, 2, 16))
    cos, sin = arguments["cos"].double(), arguments["sin"].double()
    found = reference.local_attention(**arguments).unflatten(2, (4, 16))

    def turned(vector, token):
        pairs = torch.complex(vector[:8], vector[8:])
        around = pairs.to(torch.complex64) * torch.complex(cos[token], sin[token])
        return torch.cat([around.real, around.imag])

    for row, head, query in [(0, 0, 0), (1, 1, 2), (0, 2, 1), (1, 3, 2)]:
        q = turned(arguments["q"][query, row].unflatten(0, (4, 16))[head], 1 + query)
        keys = [turned(kv[t, row, 0, head // 2], t) for t in range(5)]
        weights = torch.stack([q @ k / 4 for k in keys]).softmax(dim=0)
        expected = weights.double() @ kv[:, row, 1, head // 2]
        assert torch.allclose(found[query, row, head], expected, atol=1e-5)


@pytest.mark.parametrize("tile", [Tile(16, 4, 1), Tile(64, 1, 4), Tile(32, 3, 2)])
def test_every_tile_gives_the_same(tile, dtype, device, error, tolerance):
    arguments = case(1, 11, 0, 11, 8, 1, 16, dtype, device)
    expected = module.local_attention(**arguments)
    assert error(module.local_attention(**arguments, tile=tile), expected) <= tolerance(dtype)


def test_a_rows_output_is_that_of_the_row_alone(device):
    arguments = case(3, 11, 7, 4, 4, 2, 16, torch.float32, device)
    together = module.local_attention(**arguments)
    for row in range(3):
        alone = {name: arguments[name][:, row : row + 1] for name in ("q", "kv")}
        assert torch.equal(module.local_attention(**(arguments | alone))[:, 0], together[:, row])


def test_wanted_tokens_are_those_of_all(device):
    arguments = case(2, 11, 0, 11, 4, 2, 16, torch.float32, device)
    whole = module.local_attention(**arguments)
    last = arguments | {"q": arguments["q"][-4:], "first": 7}
    assert torch.allclose(module.local_attention(**last), whole[-4:], atol=1e-6)


def test_shapes_that_do_not_fit_are_refused(device):
    good = case(2, 5, 0, 5, 4, 2, 16, torch.float32, device)
    for changed in (
        {"q": good["q"][..., :-1]},
        {"q": good["q"][:, :1]},
        {"q": good["q"][..., :48]},  # three heads by two
        {"kv": good["kv"][..., :16]},
        {"kv": good["kv"][..., :-16]},
        {"sin": good["sin"][:4]},
    ):
        with pytest.raises(ValueError, match="are no heads of one width"):
            module.local_attention(**(good | changed))
    with pytest.raises(ValueError, match="5 queries from token 1 leave the 5 tokens"):
        module.local_attention(**(good | {"first": 1}))


def test_what_the_kernel_cannot_take_is_refused(device):
    for shape in ((1, 65, 0, 1, 2, 1, 16), (1, 5, 0, 5, 2, 1, 8), (1, 5, 0, 5, 2, 1, 48)):
        with pytest.raises(ValueError, match="at most 64 tokens"):
            module.local_attention(**case(*shape, torch.float32, device))
    arguments = case(2, 5, 0, 5, 2, 1, 16, torch.float32, device)
    apart = arguments["q"].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match="contiguous heads"):
        module.local_attention(**(arguments | {"q": apart}))


def test_attention_with_its_rotary_is_one_launch(launches, device):
    log = launches(module, "_local_attention_kernel")
    module.local_attention(**case(1, 11, 0, 11, 16, 2, 16, torch.float32, device))
    assert log == ["_local_attention_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.where(cols < half, -1.0, 1.0)", "tl.where(cols < half, 1.0, 1.0)"),
        ("partner = (cols + half) % D", "partner = cols"),
        ("cos, sin, FIRST + token,", "cos, sin, token,"),
        ('input_precision="ieee") * SCALE', 'input_precision="ieee")'),
        ("real = (tl.arange(0, KEYS) < TOKENS)", "real = (tl.arange(0, KEYS) < KEYS)"),
        ("there = key < TOKENS", "there = key < TOKENS - 1"),
        ("token = query // group", "token = query // QUERIES"),
        ("head = kv_head * group + query", "head = kv_head + query"),
        ("key_heads + HKV * D", "key_heads + D"),
        ("asked = query < group * QUERIES", "asked = query < group * QUERIES - 1"),
        ("(program % PROGRAMS + 1) * BLOCKS)", "(program % PROGRAMS + 1) * BLOCKS - 1)"),
        (" / total", ""),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    arguments = case(2, 11, 4, 7, 10, 2, 32, torch.float32, device)
    found = wrong.local_attention(**arguments)
    assert error(found, reference.local_attention(**arguments)) > 1e-3
