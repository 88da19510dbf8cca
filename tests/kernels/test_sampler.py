from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ttsbatch.kernels import sampler as module
from ttsbatch.kernels.launch import jit, tl
from ttsbatch.kernels.reference import sampler as reference

GOLDENS = Path(__file__).parents[1] / "data" / "qwen3_tts_tiny"
KNOWN_ANSWERS = [  # Random123 1.09, kat_vectors, "philox 4x32 10"
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def case(num_slots, num_ids, device, **changed):
    """Arguments of the call, plain settings unless changed; a scalar goes to every row."""
    settings = {"temperature": 0.9, "top_k": 0, "top_p": 1.0, "penalty": None, **changed}
    arguments = {
        "logits": torch.randn(num_slots, num_ids, device=device) * 3,
        "seen": None,
        "banned": None,
        "end_id": -1,
        "min_frames": 0,
        "age": torch.arange(num_slots, device=device),
        "seed": torch.randint(-(2**63), 2**63 - 1, (num_slots,), device=device),
        "codebook": 3,
        "stream": torch.arange(num_slots, device=device) * 65537,
        **settings,
    }
    for name, dtype in [
        ("temperature", torch.float32),
        ("top_k", torch.int64),
        ("top_p", torch.float32),
        ("penalty", torch.float32),
    ]:
        if isinstance(arguments[name], (int, float)):
            arguments[name] = torch.full((num_slots,), arguments[name], dtype=dtype, device=device)
    return arguments


def processed(arguments):
    names = ("logits", "temperature", "top_k", "top_p", "penalty", "seen", "banned")
    names += ("end_id", "min_frames", "age")
    return reference.process_logits(*(arguments[name] for name in names))


def spread(arguments, num_draws):
    """The arguments of a single row, `num_draws` times, each with a uniform of its own."""
    wide = {
        name: value.expand(num_draws, *value.shape[1:]).contiguous()
        if isinstance(value, torch.Tensor)
        else value
        for name, value in arguments.items()
    }
    return {**wide, "stream": torch.arange(num_draws, device=arguments["logits"].device)}


def check_reach(arguments):
    """Draws reach exactly the ids that are left, and the kernel makes the reference's draws."""
    kept = processed(arguments)[0].isfinite()
    reached = torch.zeros_like(kept)
    reached[reference.sample(**spread(arguments, 4096))] = True
    assert torch.equal(reached, kept)
    few = spread(arguments, 4096 if arguments["logits"].is_cuda else 12)
    assert torch.equal(module.sample(**few), reference.sample(**few))


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, answer):
    words = reference.philox_words(
        tuple(torch.tensor([word]) for word in counter), tuple(torch.tensor([w]) for w in key)
    )
    assert tuple(int(word) for word in words) == answer


def test_uniform_is_the_first_word_of_key_and_counter():
    seed = torch.tensor([0x299F31D0A4093822])
    age, stream = torch.tensor([5]), torch.tensor([9])
    key = (torch.tensor([0xA4093822]), torch.tensor([0x299F31D0]))
    counter = (age, torch.tensor([7]), stream, torch.tensor([0]))
    word = int(reference.philox_words(counter, key)[0])
    uniform = reference.philox_uniform(seed, age, 7, stream)
    assert uniform.dtype == torch.float32
    assert uniform.item() == float(np.float32(word >> 8) + np.float32(0.5)) / 2**24


@jit()
def _uniform_kernel(seeds, ages, codebook, streams, out):
    row = tl.program_id(0)
    drawn = module._philox_uniform(
        tl.load(seeds + row), tl.load(ages + row), tl.load(codebook), tl.load(streams + row)
    )
    tl.store(out + row, drawn)


def test_uniform_of_the_kernel_is_the_same_bit_for_bit(device):
    seed = torch.randint(-(2**63), 2**63 - 1, (12,), device=device)
    age = torch.tensor([0, 1, 7, 2**31, 2**32 + 5, 8191] * 2, device=device)
    stream = torch.tensor([0, 65536, 3, -1] * 3, device=device)
    found = torch.empty(12, device=device)
    _uniform_kernel[(12,)](seed, age, torch.tensor([15], device=device), stream, found)
    assert torch.equal(found, reference.philox_uniform(seed, age, 15, stream))


def test_uniforms_are_even_and_in_range(device):
    seeds = torch.randint(-(2**63), 2**63 - 1, (20_000,), device=device)
    zero = torch.zeros_like(seeds)
    uniform = reference.philox_uniform(seeds, zero, 0, zero)
    assert uniform.min() > 0
    assert uniform.max() <= 1
    counts = torch.histc(uniform, bins=20, min=0, max=1)
    assert (counts - 1000).abs().max() < 150  # five deviations


@pytest.mark.parametrize("name", ["seed", "age", "stream"])
def test_every_part_of_the_key_changes_the_uniform(name):
    parts = {"seed": torch.tensor([4]), "age": torch.tensor([4]), "stream": torch.tensor([4])}
    before = reference.philox_uniform(**parts, codebook=1)
    assert reference.philox_uniform(**{**parts, name: parts[name] + 1}, codebook=1) != before
    assert reference.philox_uniform(**parts, codebook=2) != before


def test_processed_logits_equal_the_published_code():
    index = json.loads((GOLDENS / "index.json").read_text())["cases"]["sampling"]
    goldens = np.load(GOLDENS / "goldens" / "sampling.npz")
    end_id = index["eos"]
    for number, settings in enumerate(index["cases"]):
        logits = torch.from_numpy(goldens[f"case{number}.logits"])
        history = torch.from_numpy(goldens[f"case{number}.history"]).long()
        num_rows, num_ids = logits.shape
        banned = torch.arange(num_ids) >= num_ids - 1024
        banned[end_id] = False
        found = processed(
            case(
                num_rows,
                num_ids,
                "cpu",
                logits=logits,
                temperature=settings["temperature"],
                top_k=settings["top_k"],
                top_p=settings["top_p"],
                penalty=settings["repetition_penalty"],
                seen=torch.zeros_like(logits, dtype=torch.bool).scatter(1, history, True),
                banned=banned,
                end_id=end_id,
                min_frames=settings["min_new_tokens"],
                age=torch.full((num_rows,), history.shape[1]),
            )
        )
        assert torch.equal(found, torch.from_numpy(goldens[f"case{number}.processed"]))


@pytest.mark.parametrize("num_ids", [64, 1088, 2048, 3000])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (1, 1.0), (50, 1.0), (20, 0.8), (0, 0.5)])
def test_draws_equal_the_reference(num_ids, top_k, top_p, device):
    arguments = case(3, num_ids, device, top_k=top_k, top_p=top_p)
    assert torch.equal(module.sample(**arguments), reference.sample(**arguments))


@pytest.mark.parametrize("dtype_in", [torch.float16, torch.bfloat16])
def test_logits_of_half_width_are_widened_first(dtype_in, device):
    logits = (torch.randn(6, 200, device=device) * 3).to(dtype_in)
    arguments = case(6, 200, device, logits=logits, top_k=9)
    widened = {**arguments, "logits": logits.float()}
    assert torch.equal(module.sample(**arguments), module.sample(**widened))


def test_rows_keep_their_own_settings(device):
    arguments = case(
        6,
        500,
        device,
        temperature=torch.tensor([0.0, 0.5, 1.0, 1.5, 0.9, 0.0], device=device),
        top_k=torch.tensor([0, 3, 0, 600, 499, 1], device=device),
        top_p=torch.tensor([0.1, 1.0, 0.7, 0.01, 2.0, 1.0], device=device),
        penalty=torch.tensor([1.0, 1.3, 1.05, 2.0, 1.0, 5.0], device=device),
        seen=torch.rand(6, 500, device=device) < 0.3,
        banned=torch.rand(500, device=device) < 0.2,
        end_id=17,
        min_frames=3,
    )
    assert torch.equal(module.sample(**arguments), reference.sample(**arguments))


def test_a_row_does_not_depend_on_its_neighbours(device):
    arguments = case(5, 300, device, top_k=20, top_p=0.9)
    together = module.sample(**arguments)
    for row in range(5):
        alone = {
            name: value[row : row + 1] if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
        assert module.sample(**alone) == together[row]


@pytest.mark.parametrize("top_k", [1, 2, 5, 11, 12])
def test_top_k_reaches_exactly_its_set(top_k, device):
    logits = torch.tensor([[1.0, 0.0, -0.0, 2.0, 1.0, -1.0, 2.0, -3.0, 1.5, 0.5, 0.25, -2.0]])
    arguments = case(1, 12, device, logits=logits.to(device), temperature=3.0, top_k=top_k)
    check_reach(arguments)


@pytest.mark.parametrize("top_k", [2**31 + 1, 2**32 + 1, 2**63 - 1, -(2**32) + 1, -1])
def test_any_top_k_that_is_none_of_the_row_is_off(top_k, device):
    arguments = case(12, 50, device, temperature=5.0, top_k=top_k)
    found = module.sample(**arguments)
    assert torch.equal(found, reference.sample(**arguments))
    off = torch.zeros_like(arguments["top_k"])
    assert torch.equal(found, module.sample(**{**arguments, "top_k": off}))


@pytest.mark.parametrize("top_p", [0.0, 0.2, 0.45, 0.55, 0.75, 0.97])
def test_top_p_cuts_ties_by_id_as_the_reference_does(top_p, device):
    """Four ties of 0.2 and two of 0.1: an edge falls inside of them."""
    chances = torch.tensor([[0.2, 0.1, 0.2, 0.2, 0.1, 0.2]], device=device)
    arguments = case(1, 6, device, logits=chances.log(), temperature=1.0, top_p=top_p)
    check_reach(arguments)


def test_draws_follow_the_distribution(device):
    chances = torch.tensor([0.5, 0.0, 0.3, 0.2], device=device)
    arguments = case(1, 4, device, logits=chances.log()[None], temperature=1.0)
    counts = reference.sample(**spread(arguments, 20_000)).bincount(minlength=4)
    assert counts[1] == 0
    assert ((counts - 20_000 * chances).abs() < 350).all()  # five deviations


def test_greedy_takes_the_first_best_that_may_be_drawn(device):
    logits = torch.tensor([[4.0, 9.0, 5.0, 5.0, 8.0]], device=device)
    arguments = case(
        1,
        5,
        device,
        logits=logits,
        temperature=0.0,
        top_p=0.1,
        penalty=10.0,
        seen=torch.tensor([[False, True, False, False, False]], device=device),
        end_id=4,
        min_frames=2,
    )
    assert module.sample(**arguments).tolist() == [2]
    assert reference.sample(**arguments).tolist() == [2]
    arguments["age"] = torch.tensor([2], device=device)
    assert module.sample(**arguments).tolist() == [4]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_rows_without_a_distribution_give_an_id_in_range(value, device):
    logits = torch.full((2, 70), value, device=device)
    for settings in ({"top_k": 5}, {"top_p": 0.5}, {"temperature": 0.0}):
        arguments = case(2, 70, device, logits=logits, **settings)
        for sample in (module.sample, reference.sample):
            ids = sample(**arguments)
            assert bool(((ids >= 0) & (ids < 70)).all())


def test_ids_are_marked_as_seen_on_request(device):
    for sample in (module.sample, reference.sample):
        seen = torch.zeros(3, 90, dtype=torch.bool, device=device)
        arguments = case(3, 90, device, penalty=1.1, seen=seen)
        ids = sample(**arguments)
        assert not seen.any()
        assert torch.equal(sample(**arguments, mark_seen=True), ids)
        assert torch.equal(seen.nonzero()[:, 1], ids)
    with pytest.raises(ValueError, match="needs `seen`"):
        module.sample(**case(3, 90, device), mark_seen=True)


def test_a_codebook_is_one_launch(launches, device):
    log = launches(module, "_sampler_kernel")
    module.sample(**case(4, 90, device, top_k=5, top_p=0.9))
    assert log == ["_sampler_kernel"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("V).to(tl.int32)", "V).to(tl.int32) + 1"),
        ("bits ^ ((bits >> 31) & 0x7FFFFFFF)", "bits"),
        ("tail = (1.0 - p)", "tail = p"),
        ("seed, age.to(tl.int32), codebook", "seed, codebook.to(tl.int32), codebook"),
        ("(mass > target)", "(mass > target * 1.05)"),
        ("x = tl.where(repeated,", "x = tl.where(repeated & (x > 0.0),"),
        ("x = tl.div_rn(x, tl.where(sampled", "x = x * (tl.where(sampled"),
    ],
)
def test_a_wrong_kernel_shows(old, new, mutant, device):
    wrong = mutant(module, old, new)
    arguments = case(
        16,
        100,
        device,
        logits=torch.randn(16, 100, device=device) - 3,
        temperature=2.0,
        top_k=torch.tensor([0, 2, 3, 4] * 4, device=device),
        top_p=torch.linspace(1.1, 0.5, 16, device=device),
        penalty=1.8,
        seen=torch.rand(16, 100, device=device) < 0.3,
    )
    assert not torch.equal(wrong.sample(**arguments), reference.sample(**arguments))
