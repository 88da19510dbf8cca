from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import embed_rms_norm as module
from ttsbatch.kernels.reference import embed_rms_norm as reference

EPS = 1e-6


def case(num_slots, num_ids, width, dtype, device):
    ids = torch.randint(num_ids, (num_slots,), device=device)
    ids[-1] = num_ids - 1
    table = torch.randn(num_ids, width, device=device, dtype=dtype) * 3
    weight = torch.randn(width, device=device, dtype=dtype)
    return ids, table, weight


@pytest.mark.parametrize("has_before", [False, True])
@pytest.mark.parametrize(("num_slots", "width"), [(1, 64), (5, 48), (3, 257), (2, 1024)])
def test_tokens_equal_their_reference(
    num_slots, width, has_before, dtype, device, error, tolerance
):
    ids, table, weight = case(num_slots, 11, width, dtype, device)
    before = torch.randn(num_slots, width, device=device, dtype=dtype) if has_before else None
    normed, x = module.embed_rms_norm(ids, table, weight, EPS, before)
    right, right_x = reference.embed_rms_norm(ids, table, weight, EPS, before)
    assert x.shape == (num_slots, 2 if has_before else 1, width)
    assert torch.equal(x, right_x)
    assert error(normed, right) <= tolerance(dtype)


def test_rows_before_may_lie_apart(device, error):
    ids, table, weight = case(4, 11, 64, torch.float32, device)
    before = torch.randn(4, 3, 64, device=device)[:, 1]
    normed, x = module.embed_rms_norm(ids, table, weight, EPS, before)
    assert torch.equal(x[:, 0], before)
    assert error(normed, reference.embed_rms_norm(ids, table, weight, EPS, before)[0]) <= 2e-6


def test_strided_rows_are_rejected(device):
    ids, table, weight = case(4, 11, 64, torch.float32, device)
    with pytest.raises(ValueError, match="contiguous"):
        module.embed_rms_norm(ids, table, weight, EPS, torch.randn(64, 4, device=device).T)


def test_lookup_and_norm_are_one_launch(launches, device):
    log = launches(module, "_embed_rms_norm_kernel")
    ids, table, weight = case(4, 11, 64, torch.float32, device)
    module.embed_rms_norm(ids, table, weight, EPS)
    module.embed_rms_norm(ids, table, weight, EPS, table[:4])
    assert log == ["_embed_rms_norm_kernel"] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.load(ids + slot)", "tl.load(ids)"),
        ("token == 0", "token == 1"),
        ("slot * before_stride", "slot"),
        ("slot * T + token", "slot + token"),
        (" / E + EPS", " / BLOCK + EPS"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    ids, table, weight = case(5, 11, 48, torch.float32, device)
    before = torch.randn(5, 48, device=device)
    expected = torch.stack(reference.embed_rms_norm(ids, table, weight, EPS, before))
    found = torch.stack(wrong.embed_rms_norm(ids, table, weight, EPS, before))
    assert error(found, expected) > 1e-3
