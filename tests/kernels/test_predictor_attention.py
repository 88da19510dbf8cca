from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import predictor_attention as module
from ttsbatch.kernels.reference import predictor_attention as reference


def case(num_slots, num_q, num_kv, head_dim, position, num_new, dtype, device, positions=16):
    """Arguments of the call; cache positions that must not be read hold NaN."""
    angles = torch.rand(positions, head_dim // 2, device=device) * 6
    caches = torch.randn(2, num_slots, num_kv, positions, head_dim, device=device, dtype=dtype)
    caches[:, :, :, position:] = torch.nan
    shape = (num_slots, num_new) if num_new > 1 else (num_slots,)
    width = (num_q + 2 * num_kv) * head_dim
    return {
        "qkv": torch.randn(*shape, width, device=device, dtype=dtype),
        "q_weight": torch.randn(head_dim, device=device, dtype=dtype),
        "k_weight": torch.randn(head_dim, device=device, dtype=dtype),
        "cos": angles.cos(),
        "sin": angles.sin(),
        "position": position,
        "k_cache": caches[0],
        "v_cache": caches[1],
        "eps": 1e-6,
    }


def both(function, arguments):
    """Output and the caches up to the new position, of kernel and reference."""
    results = []
    for call in (function, reference.predictor_attention):
        caches = {name: arguments[name].clone() for name in ("k_cache", "v_cache")}
        out = call(**{**arguments, **caches})
        end = arguments["position"] + (1 if out.dim() == 2 else out.shape[1])
        results.append((out, *(cache[:, :, :end] for cache in caches.values())))
    return results


@pytest.mark.parametrize(
    ("num_slots", "num_q", "num_kv", "head_dim", "position", "num_new"),
    [
        (1, 4, 2, 16, 0, 1),
        (3, 4, 2, 16, 0, 2),
        (2, 16, 8, 128, 0, 2),
        (3, 4, 2, 32, 2, 1),
        (2, 6, 2, 32, 7, 2),
        (2, 4, 4, 16, 14, 2),
        (2, 16, 8, 128, 15, 1),
    ],
)
def test_output_and_cache_equal_the_reference(
    num_slots, num_q, num_kv, head_dim, position, num_new, dtype, device, error, tolerance
):
    arguments = case(num_slots, num_q, num_kv, head_dim, position, num_new, dtype, device)
    found, expected = both(module.predictor_attention, arguments)
    for one, other in zip(found, expected, strict=True):
        assert error(one, other) <= tolerance(dtype)


def test_two_tokens_at_once_equal_one_after_the_other(device, error):
    arguments = case(3, 4, 2, 16, 0, 2, torch.float32, device)
    together = module.predictor_attention(**arguments)
    for t in (0, 1):
        single = {**arguments, "qkv": arguments["qkv"][:, t].contiguous(), "position": t}
        assert error(module.predictor_attention(**single), together[:, t]) <= 2e-6


def test_all_positions_share_four_kernels(device):
    """Every new set of constants costs a compilation at start-up."""
    seen = set()
    kernel = module._predictor_attention_kernel

    class Spy:
        def __getitem__(self, grid):
            def run(*args, **constants):
                seen.add((constants["NEW"], constants["KEYS"]))
                return kernel[grid](*args, **constants)

            return run

    module._predictor_attention_kernel, kept = Spy(), kernel
    try:
        for position, num_new in [(0, 2), *((p, 1) for p in range(2, 16))]:
            module.predictor_attention(
                **case(1, 4, 2, 16, position, num_new, torch.float32, device)
            )
    finally:
        module._predictor_attention_kernel = kept
    assert seen == {(2, 4), (1, 4), (1, 8), (1, 16)}


def test_tokens_past_the_cache_are_rejected(device):
    arguments = case(1, 4, 2, 16, 15, 2, torch.float32, device)
    with pytest.raises(ValueError, match="leave the cache of 16"):
        module.predictor_attention(**arguments)


def test_a_pass_is_one_launch(launches, device):
    log = launches(module, "_predictor_attention_kernel")
    module.predictor_attention(**case(3, 4, 2, 16, 4, 1, torch.float32, device))
    assert log == ["_predictor_attention_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.where(key <= now,", "tl.where(key < now + NEW,"),
        ("old = (key < position)", "old = (key < position - 1)"),
        ("query_head = head * group + g", "query_head = g * HKV + head"),
        ("* SCALE, float", "* SCALE * SCALE, float"),
        ("here = (key == now)", "here = (key == position)"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    found, expected = both(
        wrong.predictor_attention, case(3, 4, 2, 16, 5, 2, torch.float32, device)
    )
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) > 1e-3
