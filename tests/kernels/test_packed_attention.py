"""Causal attention over packed prompts: kernel against reference."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from ttsbatch.kernels import packed_attention as module
from ttsbatch.kernels.bench.packed_attention import masked_attention
from ttsbatch.kernels.packed_attention import packed_attention
from ttsbatch.kernels.reference import packed_attention as reference

LENGTHS = [[1], [33], [1, 1, 1], [5, 70, 32, 1, 9], [64, 64], [31, 2, 100]]


def inputs(
    lengths: list[int], heads: tuple[int, int], width: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = sum(lengths)
    packed = torch.randn(tokens, heads[0] + 2 * heads[1], width, device=device).to(dtype)
    q, k, v = packed.split([heads[0], heads[1], heads[1]], dim=1)  # rows lie apart, as in a model
    position = torch.cat([torch.arange(n) for n in lengths]).to(device)
    return q, k, v, position


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("heads", "width"), [((4, 2), 32), ((2, 1), 128), ((3, 3), 16)])
def test_kernel_equals_reference(
    lengths: list[int],
    heads: tuple[int, int],
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    error: Callable[..., float],
    tolerance: Callable[[torch.dtype], float],
) -> None:
    q, k, v, position = inputs(lengths, heads, width, dtype, device)
    found = packed_attention(q, k, v, position)
    expected = reference.packed_attention(q.double(), k.double(), v.double(), position).to(dtype)
    assert error(found, expected) < tolerance(dtype)


@pytest.mark.filterwarnings("ignore:(All-NaN|invalid value):RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("attend", [packed_attention, reference.packed_attention])
def test_what_is_not_finite_stays_in_its_prompt(
    attend: Callable[..., torch.Tensor], value: float, dtype: torch.dtype, device: torch.device
) -> None:
    lengths = [20, 25, 30, 40, 3]  # of which several share each block of tokens
    q, k, v, position = inputs(lengths, (4, 2), 32, dtype, device)
    prompt = torch.repeat_interleave(torch.tensor(lengths, device=device))
    bad = (prompt == 1) | (prompt == 3)
    expected = attend(q, k, v, position)
    for x in (q, k, v):
        x[bad] = value
    found = attend(q, k, v, position)
    assert torch.equal(found[~bad], expected[~bad])
    assert bool(found[bad].isnan().all())


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("attend", [packed_attention, reference.packed_attention])
def test_a_token_that_is_nan_is_not_seen_by_those_before_it(
    attend: Callable[..., torch.Tensor], part: str, dtype: torch.dtype, device: torch.device
) -> None:
    q, k, v, position = inputs([50, 40, 9], (4, 2), 32, dtype, device)
    expected = attend(q, k, v, position)
    (k if part == "key" else v)[60, 0, 5] = torch.nan  # of the heads that read it
    found = attend(q, k, v, position)
    seen = torch.zeros_like(found, dtype=torch.bool)
    seen[60:90, :2] = True
    assert torch.equal(found[~seen], expected[~seen])
    assert bool(found[seen].isnan().all())


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_rival_of_the_bench_equals_the_reference(
    lengths: list[int], device: torch.device, error: Callable[..., float]
) -> None:
    q, k, v, position = inputs(lengths, (4, 2), 32, torch.float32, device)
    expected = reference.packed_attention(q, k, v, position)
    assert error(masked_attention(q, k, v, position), expected) < 2e-6


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(key[None, :] <= token[:, None])", "(key[None, :] <= token[:, None] + 1)"),
        ("(key[None, :] >= begins[:, None])", "(key[None, :] >= start)"),
        ("total = total * fade +", "total = total +"),
    ],
)
def test_a_wrong_copy_fails(
    old: str,
    new: str,
    device: torch.device,
    mutant: Callable[[ModuleType, str, str], ModuleType],
    error: Callable[..., float],
) -> None:
    wrong = mutant(module, old, new)
    q, k, v, position = inputs([70, 33, 9], (4, 2), 32, torch.float32, device)
    expected = reference.packed_attention(q, k, v, position)
    assert error(wrong.packed_attention(q, k, v, position), expected) > 1e-3


def test_it_is_one_launch(device: torch.device, launches: Callable[..., list[str]]) -> None:
    log = launches(module, "_packed_attention_kernel")
    packed_attention(*inputs([5, 40], (4, 2), 32, torch.float32, device))
    assert log == ["_packed_attention_kernel"]


def test_heads_that_lie_apart_are_refused(device: torch.device) -> None:
    q, k, v, position = inputs([4], (4, 2), 32, torch.float32, device)
    with pytest.raises(ValueError, match="contiguous"):
        packed_attention(q.transpose(0, 1), k, v, position)
