from __future__ import annotations

from functools import partial

import pytest
import torch

from ttsbatch.kernels import advance_rows as module
from ttsbatch.kernels.reference import advance_rows as reference

NUM_FRAMES = 6


def case(num_rows, num_codebooks, device):
    """Rows of every kind: idle, at the start, within, one before the cap, ending."""
    row = torch.arange(num_rows, device=device)
    return {
        "values": torch.randint(2048, (num_rows, num_codebooks), device=device),
        "ended": row % 5 == 2,
        "active": row % 4 != 3,
        "age": row % NUM_FRAMES,
        "cap": torch.where(row % 3 == 0, row % NUM_FRAMES + 1, NUM_FRAMES),
        "finish": torch.where(row % 4 != 3, 0, 1),
        "kept": torch.full(
            (num_rows, NUM_FRAMES + 1, num_codebooks), -5, dtype=torch.int16, device=device
        ),
    }


def after(advance, arguments, if_ended=1, if_full=2):
    """What advancing leaves, on copies; the last place of `kept` is nobody's."""
    state = {name: tensor.clone() for name, tensor in arguments.items()}
    advance(**state, if_ended=if_ended, if_full=if_full)
    state["kept"] = state["kept"][:, :-1]
    return state


def differences(advance, arguments):
    expected = after(reference.advance_rows, arguments)
    found = after(advance, arguments)
    return [name for name in expected if not torch.equal(found[name], expected[name])]


@pytest.mark.parametrize(("num_rows", "num_codebooks"), [(1, 16), (7, 3), (8, 16), (61, 16)])
def test_state_equals_its_reference(num_rows, num_codebooks, device):
    assert differences(module.advance_rows, case(num_rows, num_codebooks, device)) == []


@pytest.mark.parametrize("advance", [module.advance_rows, reference.advance_rows])
def test_each_kind_of_row_ends_as_it_should(advance, device):
    def row(values, dtype=torch.int64):
        return torch.tensor(values, dtype=dtype, device=device)

    kept = torch.zeros(4, NUM_FRAMES + 1, 2, dtype=torch.int16, device=device)
    codes = row([[1, 2], [3, 4], [5, 6], [7, 8]])
    ended, active = row([0, 0, 1, 0], torch.bool), row([1, 1, 1, 0], torch.bool)
    age, cap, finish = row([0, 4, 3, 2]), row([5, 5, 5, 5]), row([0, 0, 0, 2])
    advance(codes, ended, active, age, cap, finish, kept, if_ended=1, if_full=2)
    assert active.tolist() == [True, False, False, False]
    assert age.tolist() == [1, 5, 3, 2]
    assert finish.tolist() == [0, 2, 1, 2]
    assert kept[0, 0].tolist() == [1, 2]
    assert kept[1, 4].tolist() == [3, 4]
    assert not kept[2:, :-1].any()


@pytest.mark.parametrize("advance", [module.advance_rows, reference.advance_rows])
def test_the_frame_that_a_row_ends_with_is_kept_where_it_is_one(advance, device):
    def row(values, dtype=torch.int64):
        return torch.tensor(values, dtype=dtype, device=device)

    kept = torch.zeros(4, NUM_FRAMES + 1, 2, device=device)
    values = row([[0.5, 1], [2, 3], [4, 5], [6, 7]], torch.float32)
    ended, active = row([0, 1, 1, 1], torch.bool), row([1, 1, 1, 0], torch.bool)
    age, cap, finish = row([0, 3, 4, 2]), row([5, 5, 5, 5]), row([0, 0, 0, 2])
    state = (active, age, cap, finish, kept)
    advance(values, ended, *state, if_ended=1, if_full=2, keep_last=True)
    assert active.tolist() == [True, False, False, False]
    assert age.tolist() == [1, 4, 5, 2]
    assert finish.tolist() == [0, 1, 1, 2]  # ended by itself, at the cap too
    assert kept[0, 0].tolist() == [0.5, 1]
    assert kept[1, 3].tolist() == [2, 3]
    assert kept[2, 4].tolist() == [4, 5]
    assert not kept[3, :-1].any()


@pytest.mark.parametrize("num_rows", [7, 61])
def test_wide_frames_of_latents_equal_the_reference(num_rows, dtype, device):
    arguments = case(num_rows, 256, device)
    arguments["values"] = torch.randn(num_rows, 256, device=device).to(dtype)
    arguments["kept"] = arguments["kept"].to(dtype)
    for keep_last in (False, True):
        ours, theirs = (
            after(partial(f, keep_last=keep_last), arguments)
            for f in (module.advance_rows, reference.advance_rows)
        )
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_frames_beyond_the_room_are_not_kept(device):
    """A row may run on for the frames that are in flight when the host sees its end."""
    arguments = case(9, 16, device)
    arguments["age"].fill_(NUM_FRAMES + 3)
    before = arguments["kept"].clone()
    state = after(module.advance_rows, arguments)
    assert torch.equal(state["kept"], before[:, :-1])


def test_advance_is_one_launch(launches, device):
    log = launches(module, "_advance_rows_kernel")
    module.advance_rows(**case(9, 16, device), if_ended=1, if_full=2)
    assert log == ["_advance_rows_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("made = goes_on", "made = runs"),
        ("row * (num_frames + 1) + age", "row * num_frames + age"),
        ("age >= tl.load(caps", "age > tl.load(caps"),
        ("(runs & ends).to(tl.int64)", "ends.to(tl.int64)"),
        ("(goes_on & (full == 0)).to", "goes_on.to"),
        ("reason += tl.load(finish + row, mask=exists, other=0)", "reason += 0"),
        ("mask=inside & fits[:, None]", "mask=inside"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device):
    wrong = mutant(module, old, new)
    assert differences(wrong.advance_rows, case(61, 16, device)) != []
