from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import guided_step as module
from ttsbatch.kernels.reference import guided_step as reference


def case(num_slots, latents, channels, dtype, device):
    x = torch.randn(latents, num_slots, channels, device=device).repeat(1, 2, 1)
    velocity = torch.randn(latents, 2 * num_slots, channels, device=device)
    velocity[:, num_slots:] += velocity[:, :num_slots]  # the two have a part in common
    return {
        "x": x.to(dtype),
        "velocity": velocity.to(dtype),
        "strength": torch.linspace(1, 3, num_slots, device=device),
        "width": (torch.rand(num_slots, 5, device=device) / 5 + 0.05)[:, 2],
    }


@pytest.mark.parametrize(
    ("num_slots", "latents", "channels"), [(1, 4, 64), (7, 4, 64), (3, 3, 5), (2, 16, 64)]
)
def test_the_step_equals_its_reference(num_slots, latents, channels, dtype, device):
    arguments = case(num_slots, latents, channels, dtype, device)
    before = arguments["x"].clone()
    found = module.guided_step(**arguments)
    expected = reference.guided_step(**arguments)
    assert torch.equal(arguments["x"], before)
    assert found.is_contiguous()
    assert torch.equal(found[:, :num_slots], found[:, num_slots:])
    # All roundings are the reference's. The order of a sum may move one by a unit, which the
    # projection, the guidance of up to 3 and the step of up to 0.25 pass on: two units of x.
    largest = expected.abs().max().float()
    bound = 2 * torch.finfo(dtype).eps * largest
    assert (found.float() - expected.float()).abs().max() <= bound
    if dtype != torch.float32:  # most elements see no such case
        assert (found == expected).float().mean() > 0.9


def test_strength_one_is_the_velocity_that_hears(device):
    arguments = case(3, 4, 64, torch.float32, device)
    arguments["strength"].fill_(1)
    expected = arguments["x"][:, :3] - arguments["width"][:, None] * arguments["velocity"][:, :3]
    for step in (module.guided_step, reference.guided_step):
        assert torch.allclose(step(**arguments)[:, :3], expected, atol=1e-6)


def test_rows_that_hear_nothing_new_move_along_it(device):
    """The projection is the whole of the velocity, whatever the strength."""
    arguments = case(3, 4, 64, torch.float32, device)
    same = arguments["velocity"][:, 3:]
    arguments["velocity"] = torch.cat([same * 2, same], dim=1)
    expected = arguments["x"][:, :3] - arguments["width"][:, None] * same * 2
    assert torch.allclose(module.guided_step(**arguments)[:, :3], expected, atol=1e-5)


def test_a_still_row_stays_and_a_zero_velocity_is_no_division_by_zero(device):
    arguments = case(3, 4, 64, torch.float32, device)
    arguments["velocity"][:, 4] = 0  # the second slot without hearing
    arguments["width"][2] = 0
    found = module.guided_step(**arguments)
    assert found.isfinite().all()
    assert torch.equal(found[:, 2], arguments["x"][:, 2])


def test_tensors_of_other_slots_are_refused(device):
    good = case(3, 4, 64, torch.float32, device)
    for changed in (
        {"velocity": good["velocity"][:, :5]},
        {"strength": good["strength"][:2]},
        {"width": good["width"][:2]},
    ):
        with pytest.raises(ValueError, match="not of the same slots"):
            module.guided_step(**(good | changed))
    apart = torch.stack([good["x"], good["x"]], dim=-1)[..., 0]
    with pytest.raises(ValueError, match="contiguous patches"):
        module.guided_step(**(good | {"x": apart}))


def test_a_step_is_one_launch(launches, device):
    log = launches(module, "_guided_step_kernel")
    module.guided_step(**case(3, 4, 64, torch.float32, device))
    assert log == ["_guided_step_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(2 * num_slots) + slot", "num_slots + slot"),
        ("velocity + at + num_slots * C", "velocity + at"),
        ("(dot / norm)", "(norm / dot)"),
        ("(heard - along)", "(heard - unheard)"),
        ("width + slot * width_stride", "width + slot"),
        ("tl.load(strength + slot)", "tl.load(strength)"),
        ("to(tl.float32) - move)", "to(tl.float32) + move)"),
        ("inside = place < P * C", "inside = place < P * C - 1"),
        ("tl.store(out + at + num_slots * C, moved", "tl.store(out + at, moved"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device, error):
    wrong = mutant(module, old, new)
    arguments = case(3, 3, 5, torch.float32, device)
    found = wrong.guided_step(**arguments)
    assert error(found, reference.guided_step(**arguments)) > 1e-3
