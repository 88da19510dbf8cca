from __future__ import annotations

import pytest
import torch

from ttsbatch.kernels import noise as module
from ttsbatch.kernels.reference import noise as reference
from ttsbatch.kernels.reference.sampler import philox_uniform


def rows(num_rows, device):
    g = torch.Generator().manual_seed(num_rows)
    seed = torch.randint(2**62, (num_rows,), generator=g) * 2
    age = torch.arange(num_rows) * 7
    stream = torch.arange(num_rows) % 3 << 20
    return [x.to(device) for x in (seed, age, stream)]


@pytest.mark.parametrize(("num_rows", "count"), [(1, 4), (5, 256), (3, 7), (2, 1)])
def test_kernel_equals_its_reference(num_rows, count, device):
    arguments = rows(num_rows, device)
    found = module.philox_normal(*arguments, count)
    expected = reference.philox_normal(*arguments, count)
    assert found.shape == (num_rows, count)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_numbers_are_standard_normal():
    scipy_stats = pytest.importorskip("scipy.stats")
    numbers = reference.philox_normal(*rows(200, "cpu"), 256).flatten()
    assert numbers.isfinite().all()
    assert scipy_stats.kstest(numbers.numpy(), "norm").pvalue > 0.01
    pairs = torch.corrcoef(numbers.view(-1, 4).T)
    assert (pairs - torch.eye(4)).abs().max() < 0.03


def test_a_row_has_the_same_numbers_in_any_batch_and_place():
    seed, age, stream = rows(40, "cpu")
    together = reference.philox_normal(seed, age, stream, 256)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    shuffled = reference.philox_normal(seed[order], age[order], stream[order], 256)
    assert torch.equal(shuffled, together[order])
    for n in (0, 17, 39):
        alone = reference.philox_normal(seed[n : n + 1], age[n : n + 1], stream[n : n + 1], 256)
        assert torch.equal(alone[0], together[n])


def test_another_seed_frame_or_attempt_gives_other_numbers():
    seed = torch.tensor([5, 5 + (1 << 32), 6, 5, 5, 5])
    age = torch.tensor([3, 3, 3, 4, 3, 3])
    stream = torch.tensor([0, 0, 0, 0, 1, 1 << 20])
    numbers = reference.philox_normal(seed, age, stream, 8)
    assert len({tuple(row) for row in numbers.tolist()}) == len(seed)


def test_noise_does_not_repeat_the_words_of_the_draws():
    seed, age, stream = torch.tensor([7]), torch.tensor([2]), torch.tensor([0])
    radius = (-2 * philox_uniform(seed, age, 0, stream).log()).sqrt()
    first, second = reference.philox_normal(seed, age, stream, 2)[0]
    assert not torch.isclose((first.square() + second.square()).sqrt(), radius)


def test_noise_is_one_launch(launches, device):
    log = launches(module, "_noise_kernel")
    module.philox_normal(*rows(3, device), 256)
    assert log == ["_noise_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 4 * block\n", "+ block\n"),
        ("zero + LAST", "zero"),
        ("tl.load(streams + slot)", "tl.load(ages + slot)"),
        ("near * tl.sin(angle)", "near * tl.cos(angle)"),
        ("_uniform(w2)", "_uniform(w0)"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device):
    arguments = rows(5, device)
    wrong = mutant(module, old, new).philox_normal(*arguments, 256)
    assert not torch.allclose(wrong, reference.philox_normal(*arguments, 256), atol=1e-4)
