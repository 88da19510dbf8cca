from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import paged_attention as module
from ttsbatch.kernels.reference import paged_attention as reference

PAGE = 16


def case(lengths, num_q, num_kv, head_dim, dtype, device, index_dtype=torch.int64):
    """Arguments of the call: pages in random order; all that no slot owns holds NaN."""
    max_pages = -(-max(lengths) // PAGE) + 1
    num_pages = 1 + len(lengths) * max_pages
    pools = torch.full((2, num_pages, num_kv, PAGE, head_dim), torch.nan, device=device).to(dtype)
    table = torch.zeros(len(lengths), max_pages, dtype=torch.int32, device=device)
    free = (torch.randperm(num_pages - 1) + 1).tolist()
    for slot, length in enumerate(lengths):
        for index in range(-(-length // PAGE)):
            page = free.pop()
            table[slot, index] = page
            used = min(length - index * PAGE, PAGE)
            pools[:, page, :, :used] = torch.randn(2, num_kv, used, head_dim, device=device).to(
                dtype
            )
    return {
        "q": torch.randn(len(lengths), num_q, head_dim, device=device, dtype=dtype) * 2,
        "k_pool": pools[0],
        "v_pool": pools[1],
        "block_table": table,
        "positions": torch.tensor(lengths, device=device, dtype=index_dtype) - 1,
        "max_length": max(lengths),
    }


@pytest.mark.parametrize(
    ("lengths", "num_q", "num_kv", "head_dim"),
    [
        ([1], 4, 2, 32),
        ([1, 16, 17, 64, 65, 130], 4, 2, 32),
        ([33, 7], 16, 8, 128),
        ([50, 3], 6, 2, 16),
        ([20, 90], 3, 3, 64),
    ],
)
@pytest.mark.parametrize("num_splits", [None, 3])
def test_output_equals_the_reference(
    lengths, num_q, num_kv, head_dim, num_splits, dtype, device, error, tolerance
):
    arguments = case(lengths, num_q, num_kv, head_dim, dtype, device)
    found = module.paged_attention(**arguments, num_splits=num_splits)
    assert error(found, reference.paged_attention(**arguments)) <= tolerance(dtype)


@pytest.mark.filterwarnings("ignore:(All-NaN|invalid value):RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("attend", [module.paged_attention, reference.paged_attention])
def test_a_row_of_nan_stays_alone_and_leaves_nothing_to_the_next_owner(attend, dtype, device):
    arguments = case([70, 17, 40], 4, 2, 32, dtype, device)
    expected = attend(**arguments)
    pages = arguments["block_table"][0].long()
    for pool in (arguments["k_pool"], arguments["v_pool"]):
        pool[pages] = torch.nan
    found = attend(**arguments)
    assert bool(found[0].isnan().all())
    assert torch.equal(found[1:], expected[1:])
    # The second row goes on in pages of the first, which it has not filled yet.
    arguments["block_table"][1, 2:4] = pages[:2]
    arguments["block_table"][0] = 0
    arguments["positions"][0] = 0
    for pool in (arguments["k_pool"], arguments["v_pool"]):
        pool[pages[0], :, 0] = pool[pages[0], :, 0].nan_to_num(0.5)
        pool[arguments["block_table"][1, 1].long(), :, 1:] = 0.5
    arguments["positions"][1] = 32
    assert bool(attend(**arguments)[1].isfinite().all())


def test_length_bound_does_not_change_the_output(device, error):
    arguments = case([5, 40], 4, 2, 32, torch.float32, device, torch.int32)
    expected = module.paged_attention(**arguments)
    wider = {**arguments, "max_length": 64}
    assert torch.equal(module.paged_attention(**wider), expected)
    assert error(reference.paged_attention(**wider), expected) <= 2e-6


@pytest.mark.parametrize(
    ("max_length", "num_programs", "splits"),
    [
        (1024, 2048, 1),
        (1024, 128, 1),
        (1100, 2048, 3),
        (100_000, 2048, 16),
        (1024, 64, 2),  # half of the device would idle
        (1024, 16, 4),
        (1024, 1, 4),  # a part has 256 tokens to read, or the merge costs more
        (250, 1, 1),
        (1100, 1, 5),
        (100_000, 1, 16),
    ],
)
def test_contexts_are_split_where_they_are_long_or_programs_are_few(
    max_length, num_programs, splits
):
    assert module.splits_for(max_length, num_programs) == splits


def test_long_contexts_are_split(device, error):
    arguments = case([1100, 30], 2, 1, 16, torch.float32, device)
    assert module.splits_for(1100, 5) == 5
    found = module.paged_attention(**arguments)
    assert error(found, reference.paged_attention(**arguments)) <= 2e-6


def test_idle_slots_read_one_token_of_the_scratch_page(device):
    arguments = case([4, 4], 4, 2, 32, torch.float32, device)
    arguments["block_table"].zero_()
    arguments["positions"].zero_()
    for pool in ("k_pool", "v_pool"):
        arguments[pool][0, :, 0] = torch.randn(2, 32, device=device)
    found = module.paged_attention(**arguments)
    expected = arguments["v_pool"][0, :, 0].repeat_interleave(2, dim=0)
    assert torch.allclose(found, expected.expand_as(found))


def test_bound_past_the_block_table_is_rejected(device):
    arguments = case([4], 4, 2, 32, torch.float32, device)
    with pytest.raises(ValueError, match="500 tokens don't fit 2 pages"):
        module.paged_attention(**{**arguments, "max_length": 500})


def test_one_pass_is_one_launch_and_splits_are_two(launches, device):
    log = launches(module, "_attend_kernel", "_merge_kernel")
    arguments = case([30, 60], 4, 2, 32, torch.float32, device)
    module.paged_attention(**arguments)
    assert log == ["_attend_kernel"]
    module.paged_attention(**arguments, num_splits=2)
    assert log == ["_attend_kernel", "_attend_kernel", "_merge_kernel"]


@pytest.mark.parametrize(
    ("old", "new", "num_splits"),
    [
        ("positions + slot).to(tl.int32) + 1", "positions + slot).to(tl.int32)", 1),
        ("total = total * fade +", "total = total +", 1),
        ("mixed = mixed * fade[:, None]\n        mixed", "mixed", 1),
        ("slot * table_stride + token // PAGE", "slot * table_stride + (token - start) // PAGE", 1),
        ("head * group + row", "head + row * HKV", 1),
        ("end = tl.minimum(begin + share, length)", "end = tl.minimum(begin + share, share)", 3),
        ("mask=real, other=0.0) * fade", "mask=real, other=0.0)", 3),
    ],
)
def test_a_wrong_kernel_shows(old, new, num_splits, mutant, device, error):
    wrong = mutant(module, old, new)
    arguments = case([30, 300, 129], 4, 2, 32, torch.float32, device)
    found = wrong.paged_attention(**arguments, num_splits=num_splits)
    assert error(found, reference.paged_attention(**arguments)) > 1e-3
