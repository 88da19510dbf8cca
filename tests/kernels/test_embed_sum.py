from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import embed_sum as module
from ttsbatch.kernels.reference import embed_sum as reference


def case(num_slots, sizes, width, num_text, dtype, device, index_dtype=torch.int64):
    limits = torch.tensor(sizes, device=device)
    row = torch.arange(num_slots, device=device)
    codes = (torch.rand(num_slots, len(sizes), device=device) * limits).to(index_dtype)
    codes[-1] = (limits - 1).to(index_dtype)
    return {
        "codes": codes,
        "table": torch.randn(sum(sizes), width, device=device, dtype=dtype),
        "offsets": limits.cumsum(0) - limits,
        "text": module.RunningText(
            ids=((row[:, None] * 4 + row.new_tensor(range(1, 5))) % num_text).to(index_dtype),
            places=row % 4,
            lengths=torch.where(row % 2 == 0, 4, 1),  # every other row still has text
            pad_id=num_text - 1,
            table=torch.randn(num_text, width, device=device, dtype=dtype),
        ),
    }


@pytest.mark.parametrize(
    ("num_slots", "sizes", "width"),
    [(1, [40], 64), (5, [88, *[64] * 15], 64), (3, [7, 5, 9], 600), (2, [30, 20], 2048)],
)
def test_sum_equals_its_reference(num_slots, sizes, width, dtype, device, error, tolerance):
    arguments = case(num_slots, sizes, width, 11, dtype, device)
    found = module.embed_sum(**arguments)
    assert error(found, reference.embed_sum(**arguments)) <= tolerance(dtype)


def test_text_is_optional_and_codes_may_be_int32(device, error):
    arguments = case(5, [88, 64, 64], 96, 11, torch.float32, device, torch.int32)
    codes_only = {name: arguments[name] for name in ("codes", "table", "offsets")}
    found = module.embed_sum(**codes_only)
    assert error(found, reference.embed_sum(**codes_only)) <= 2e-6


def test_result_may_be_written_in_place(device, error):
    arguments = case(5, [88, 64, 64], 96, 11, torch.float32, device)
    room = torch.full((5, 96), torch.nan, device=device)
    assert module.embed_sum(**arguments, out=room) is room
    assert error(room, reference.embed_sum(**arguments)) <= 2e-6


def test_text_beyond_its_ids_is_padding(device):
    """Places past the widest text are not read; the ids there would be wild."""
    table = torch.zeros(1, 1, device=device)
    codes = torch.zeros(3, 1, dtype=torch.int64, device=device)
    text = module.RunningText(
        ids=torch.tensor([[5, 6]] * 3, dtype=torch.int32, device=device),
        places=torch.tensor([0, 1, 70], device=device),
        lengths=torch.tensor([2, 1, 2], device=device),
        pad_id=9,
        table=torch.arange(10.0, device=device)[:, None],
    )
    offsets = torch.zeros(1, dtype=torch.int64, device=device)
    found = module.embed_sum(codes, table, offsets, text)
    assert found[:, 0].tolist() == [5.0, 9.0, 9.0]


def test_codes_are_rounded_once_and_text_once(device):
    """Half of 2,049 is lost where each of three f16 additions rounds, and kept in f32."""
    table = torch.tensor([[2048.0], [1.0], [1.0]], device=device, dtype=torch.float16)
    codes = torch.zeros(1, 3, dtype=torch.int64, device=device)
    offsets = torch.arange(3, device=device)
    zero = torch.zeros(1, dtype=torch.int64, device=device)
    said = torch.tensor([[1.0]], device=device, dtype=torch.float16)
    text = module.RunningText(zero[:, None], zero, zero + 1, 0, said)
    assert module.embed_sum(codes, table, offsets).item() == 2050.0
    assert module.embed_sum(codes, table, offsets, text).item() == 2052.0  # 2051 to even


def test_sum_is_one_launch(launches, device):
    log = launches(module, "_embed_sum_kernel")
    module.embed_sum(**case(5, [88, *[64] * 15], 64, 11, torch.float32, device))
    assert log == ["_embed_sum_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ tl.load(offsets + q)", "+ tl.load(offsets)"),
        ("codes + slot * Q + q", "codes + slot + q"),
        ("text_ids + slot * ids_stride", "text_ids"),
        ("tl.load(text_places + slot)", "tl.load(text_places)"),
        ("place < tl.load(text_lengths + slot)", "place < 1"),
        ("other=pad_id", "other=0"),
        ("total += tl.load", "total = tl.load"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    arguments = case(5, [88, 64, 64], 96, 11, torch.float32, device)
    assert error(wrong.embed_sum(**arguments), reference.embed_sum(**arguments)) > 1e-3
