from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import qk_norm_rope as module
from ttsbatch.kernels.reference import qk_norm_rope as reference

PAGE = 16


def tables(num_positions, head_dim, device):
    inverse = 1e6 ** (-torch.arange(0, head_dim, 2, device=device) / head_dim)
    angles = torch.arange(num_positions, device=device)[:, None] * inverse
    return angles.cos(), angles.sin()


def case(num_slots, num_q, num_kv, head_dim, dtype, device, index_dtype=torch.int64):
    """Arguments of the call: slots on pages of their own, at positions 0, 37, 74, ..."""
    max_pages = 8
    num_pages = 1 + num_slots * max_pages
    cos, sin = tables(max_pages * PAGE, head_dim, device)
    order = torch.randperm(num_pages - 1, device=device) + 1
    pools = torch.randn(2, num_pages, num_kv, PAGE, head_dim, device=device, dtype=dtype)
    width = (num_q + 2 * num_kv) * head_dim
    return {
        "qkv": torch.randn(num_slots, width, device=device, dtype=dtype),
        "q_weight": torch.randn(head_dim, device=device, dtype=dtype),
        "k_weight": torch.randn(head_dim, device=device, dtype=dtype),
        "cos": cos,
        "sin": sin,
        "positions": (torch.arange(num_slots, device=device) * 37 % 128).to(index_dtype),
        "block_table": order.view(num_slots, max_pages).to(torch.int32),
        "k_pool": pools[0],
        "v_pool": pools[1],
        "eps": 1e-6,
    }


def both(function, arguments):
    """The results of kernel and reference on equal pools: (q, k_pool, v_pool) each."""
    results = []
    for call in (function, reference.qk_norm_rope):
        pools = {name: arguments[name].clone() for name in ("k_pool", "v_pool")}
        results.append((call(**{**arguments, **pools}), *pools.values()))
    return results


@pytest.mark.parametrize(
    ("num_slots", "num_q", "num_kv", "head_dim"),
    [(1, 4, 2, 32), (3, 4, 2, 16), (5, 16, 8, 128), (2, 3, 3, 64), (4, 7, 1, 32)],
)
def test_q_and_pages_equal_the_reference(
    num_slots, num_q, num_kv, head_dim, dtype, device, error, tolerance
):
    arguments = case(num_slots, num_q, num_kv, head_dim, dtype, device)
    found, expected = both(module.qk_norm_rope, arguments)
    assert error(found[0], expected[0]) <= tolerance(dtype)
    assert error(found[1], expected[1]) <= tolerance(dtype)
    assert torch.equal(found[2], expected[2])


def test_only_the_new_token_is_written(device):
    arguments = case(3, 4, 2, 32, torch.float32, device, torch.int32)
    before = arguments["k_pool"].clone()
    module.qk_norm_rope(**arguments)
    changed = (arguments["k_pool"] != before).all(dim=-1).all(dim=1)  # [pages, PAGE]
    expected = torch.zeros_like(changed)
    for slot, position in enumerate(arguments["positions"].tolist()):
        expected[arguments["block_table"][slot, position // PAGE], position % PAGE] = True
    assert torch.equal(changed, expected)


def test_idle_slots_write_the_scratch_page_only(device):
    arguments = case(4, 4, 2, 32, torch.float32, device)
    arguments["positions"].zero_()
    arguments["block_table"].zero_()
    before = arguments["k_pool"].clone()
    module.qk_norm_rope(**arguments)
    assert torch.equal(arguments["k_pool"][1:], before[1:])
    assert arguments["k_pool"].isfinite().all()


def test_pools_may_be_interleaved_by_page(device, error):
    arguments = case(3, 4, 2, 32, torch.float32, device)
    pair = torch.stack([arguments["k_pool"], arguments["v_pool"]], dim=1)
    k_pool, v_pool = pair.unbind(1)
    q = module.qk_norm_rope(**{**arguments, "k_pool": k_pool, "v_pool": v_pool})
    expected = reference.qk_norm_rope(**arguments)
    assert error(q, expected) <= 2e-6
    assert error(k_pool.contiguous(), arguments["k_pool"]) <= 2e-6


def test_pools_of_other_strides_are_rejected(device):
    arguments = case(2, 4, 2, 32, torch.float32, device)
    arguments["k_pool"] = arguments["k_pool"].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match="contiguous pages"):
        module.qk_norm_rope(**arguments)


def test_a_step_is_one_launch(launches, device):
    log = launches(module, "_qk_norm_rope_kernel")
    module.qk_norm_rope(**case(3, 4, 2, 32, torch.float32, device))
    assert log == ["_qk_norm_rope_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.float32) - (second * s)", "tl.float32) + (second * s)"),
        ("position // PAGE).to", "position % PAGE // 4).to"),
        ("(position % PAGE) * D", "((position + 1) % PAGE) * D"),
        ("w_first = tl.where(is_q,", "w_first = tl.where(is_k,"),
        ("is_v = (head >= HQ + HKV)", "is_v = (head > HQ + HKV)"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    found, expected = both(wrong.qk_norm_rope, case(5, 4, 2, 32, torch.float32, device))
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) > 1e-3
