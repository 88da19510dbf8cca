from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import rope_store as module
from ttsbatch.kernels.reference import rope_store as reference

PAGE = 16


def case(num_slots, heads, kv_heads, width, dtype, device, rotary=True):
    pages = 3
    angles = torch.rand(pages * PAGE, width // 2, device=device) * 6
    pool = torch.zeros(num_slots * pages + 1, kv_heads, PAGE, width, dtype=dtype, device=device)
    table = torch.randperm(num_slots * pages, device=device).view(num_slots, pages) + 1
    return {
        "qkv": torch.randn(num_slots, (heads + 2 * kv_heads) * width, device=device).to(dtype),
        "tables": (angles.cos(), angles.sin()) if rotary else None,
        "positions": torch.randint(pages * PAGE, (num_slots,), device=device),
        "block_table": table.to(torch.int32),
        "k_pool": pool,
        "v_pool": pool.clone(),
    }


def results(function, arguments):
    own = {**arguments, **{name: arguments[name].clone() for name in ("k_pool", "v_pool")}}
    return function(**own), own["k_pool"], own["v_pool"]


@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize(("slots", "heads", "kv", "width"), [(1, 4, 2, 16), (5, 16, 2, 128)])
def test_kernel_equals_its_reference(slots, heads, kv, width, rotary, dtype, device):
    arguments = case(slots, heads, kv, width, dtype, device, rotary)
    for found, expected in zip(
        results(module.rope_store, arguments),
        results(reference.rope_store, arguments),
        strict=True,
    ):
        # Rounded once from f32, whose products may be contracted: a unit in the last place.
        tolerance = 2e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


def test_without_tables_q_and_k_stay_as_they_are(dtype, device):
    arguments = case(3, 4, 2, 16, dtype, device, rotary=False)
    q, k_pool, v_pool = results(module.rope_store, arguments)
    heads = arguments["qkv"].view(3, 8, 16)
    assert torch.equal(q, heads[:, :4])
    place = arguments["positions"].long()
    page = arguments["block_table"].gather(1, (place // PAGE)[:, None])[:, 0].long()
    assert torch.equal(k_pool[page, :, place % PAGE], heads[:, 4:6])
    assert torch.equal(v_pool[page, :, place % PAGE], heads[:, 6:])


def test_rotary_and_store_are_one_launch(launches, device):
    log = launches(module, "_rope_store_kernel")
    module.rope_store(**case(2, 4, 2, 16, torch.float32, device))
    assert log == ["_rope_store_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* c - raw_second", "* c + raw_second"),
        ("cos + position * half", "cos + slot * half"),
        ("(position % PAGE) * D", "(position % PAGE)"),
        ("(head - HQ - HKV) * (PAGE * D)", "(head - HQ) * (PAGE * D)"),
        ("tl.store(target, raw_first, mask=is_v)", "tl.store(target, first, mask=is_v)"),
        ("is_q = head < HQ", "is_q = head < HQ - 1"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device):
    arguments = case(5, 4, 2, 16, torch.float32, device)
    wrong = results(mutant(module, old, new).rope_store, arguments)
    right = results(reference.rope_store, arguments)
    assert not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(wrong, right, strict=True))
