"""What the engine's sampler draws, against the plain definition of the distribution."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from scipy import stats

from tests.engine.fake import FakeLM, segment
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.rows import Rows, stream_id
from ttsbatch.engine.sampling import Sampler
from ttsbatch.engine.slots import SlotTable
from ttsbatch.models.protocol import DrawSettings, PreparedPrompt, Rules

NUM_DRAWS = 24_000
LEAST_P = 1e-4  # seeds are fixed, so a pass stays a pass
NUM_BOOKS = 16


@dataclass(frozen=True)
class Case:
    """One row's settings, rules and logits."""

    logits: list[float]
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    seen: tuple[int, ...] = ()
    banned: tuple[int, ...] = ()
    end_id: int = -1
    min_frames: int = 0
    age: int = 0
    expected_support: tuple[int, ...] | None = field(default=None, compare=False)


def plain_distribution(case: Case) -> np.ndarray:
    """Probabilities [V], by the words of the settings."""
    x = np.array(case.logits, np.float64)
    for i in case.seen:
        x[i] = x[i] / case.penalty if x[i] > 0 else x[i] * case.penalty
    allowed = [i for i in range(len(x)) if i not in case.banned]
    if case.age < case.min_frames:
        allowed = [i for i in allowed if i != case.end_id]
    if case.temperature == 0:
        best = max(allowed, key=lambda i: (x[i], -i))
        return np.eye(len(x))[best]
    x /= case.temperature
    if 0 < case.top_k < len(x):
        kth = sorted((x[i] for i in allowed), reverse=True)[min(case.top_k, len(allowed)) - 1]
        allowed = [i for i in allowed if x[i] >= kth]
    weight = {i: np.exp(x[i] - x.max()) for i in allowed}
    mass = sum(weight.values())
    if case.top_p < 1:
        before, kept = 0.0, []
        for i in sorted(allowed, key=lambda i: (-x[i], -i)):
            if kept and before >= case.top_p:
                break
            kept.append(i)
            before += weight[i] / mass
        mass = sum(weight[i] for i in kept)
        weight = {i: weight[i] for i in kept}
    return np.array([weight.get(i, 0.0) / mass for i in range(len(x))])


def rows_of(case: Case, num_slots: int) -> Rows:
    """The case in every slot."""
    rows = Rows(num_slots, 64, NUM_BOOKS, torch.device("cpu"))
    rows.temperature.fill_(case.temperature)
    rows.top_k.fill_(case.top_k)
    rows.top_p.fill_(case.top_p)
    rows.penalty.fill_(case.penalty)
    rows.age.fill_(case.age)
    rows.active.fill_(True)
    return rows


def drawn(case: Case, rows: Rows, codebook: int = 0) -> np.ndarray:
    """One draw of every slot, through the engine's own sampler."""
    num_slots, num_ids = len(rows.age), len(case.logits)
    logits = torch.tensor(case.logits).expand(num_slots, -1).contiguous()
    banned = torch.zeros(num_ids, dtype=torch.bool)
    banned[list(case.banned)] = True
    seen = torch.zeros(num_slots, num_ids, dtype=torch.bool)
    seen[:, list(case.seen)] = True
    rules = Rules(banned, case.end_id, case.min_frames)
    sampler = Sampler(rows)
    if codebook:
        sampler(logits, 0, rules, seen)  # a frame begins with codebook 0
    return sampler(logits, codebook, rules, seen).numpy()


def many(case: Case, vary: str = "seed") -> np.ndarray:
    """NUM_DRAWS draws that differ in one part of their key alone."""
    if vary == "codebook":
        rows = rows_of(case, NUM_DRAWS // NUM_BOOKS)
        rows.seed.copy_(torch.arange(len(rows.seed)) * 977)
        return np.concatenate([drawn(case, rows, q) for q in range(NUM_BOOKS)])
    rows = rows_of(case, NUM_DRAWS)
    rows.seed.fill_(20_240_607)
    getattr(rows, vary).copy_(torch.arange(NUM_DRAWS) + case.age)
    return drawn(case, rows)


def fits(ids: np.ndarray, chances: np.ndarray) -> float:
    """The p value of the ids under the distribution; none may be outside of its support."""
    counts = np.bincount(ids, minlength=len(chances))
    assert counts.sum() == len(ids)
    assert not counts[chances == 0].any()
    kept = chances > 0
    if kept.sum() == 1:
        return 1.0
    return float(stats.chisquare(counts[kept], chances[kept] * len(ids)).pvalue)


LOGITS = [1.2, -0.3, 0.0, 2.1, 0.7, -1.5, 1.9, -2.2, 0.4, 1.2, -0.8, 0.1]
TIES = [1.0, 0.0, -0.0, 2.0, 1.0, -1.0, 2.0, -3.0, 1.5, 0.5]
CASES = {
    "plain": Case(LOGITS),
    "cold": Case(LOGITS, temperature=0.4),
    "hot": Case(LOGITS, temperature=2.5),
    "top-k": Case(LOGITS, top_k=4),
    "top-k of one": Case(LOGITS, top_k=1, expected_support=(3,)),
    "top-k of all": Case(LOGITS, top_k=12),
    "top-k beyond all": Case(LOGITS, top_k=500),
    "top-k with ties at the edge": Case(TIES, top_k=4, expected_support=(0, 3, 4, 6, 8)),
    "top-k with ties inside": Case(TIES, top_k=5, expected_support=(0, 3, 4, 6, 8)),
    "top-p": Case(LOGITS, top_p=0.7),
    "top-p of next to nothing": Case(LOGITS, top_p=1e-6, expected_support=(3,)),
    "top-p keeps the id that crosses": Case(
        [float(np.log(p)) for p in (0.4, 0.35, 0.15, 0.1)], top_p=0.5, expected_support=(0, 1)
    ),
    "top-k then top-p": Case(LOGITS, top_k=6, top_p=0.8, temperature=0.9),
    "penalty": Case(LOGITS, penalty=1.8, seen=(0, 1, 3, 7)),
    "penalty below one": Case(LOGITS, penalty=0.6, seen=(0, 1, 3, 7)),
    "penalty moves the top-k": Case(LOGITS, penalty=2.5, seen=(3, 6), top_k=3),
    "banned": Case(LOGITS, banned=(3, 6, 11)),
    "banned before top-k": Case(LOGITS, banned=(3, 6), top_k=3),
    "end banned": Case(LOGITS, end_id=3, min_frames=2, age=1),
    "end banned before top-k": Case(LOGITS, end_id=3, min_frames=2, age=0, top_k=2),
    "end allowed from min_frames on": Case(LOGITS, end_id=3, min_frames=2, age=2),
    "greedy": Case(LOGITS, temperature=0.0, expected_support=(3,)),
    "greedy with ties takes the first": Case(TIES, temperature=0.0, expected_support=(3,)),
    "greedy under the rules": Case(
        LOGITS,
        temperature=0.0,
        penalty=10.0,
        seen=(6,),
        end_id=3,
        min_frames=5,
        banned=(0,),
        expected_support=(9,),
    ),
    "the published settings": Case(
        LOGITS,
        temperature=0.9,
        top_k=8,
        penalty=1.05,
        seen=(2, 3),
        banned=(10, 11),
        end_id=9,
        min_frames=2,
    ),
    "all at once": Case(
        LOGITS,
        temperature=1.3,
        top_k=7,
        top_p=0.85,
        penalty=1.4,
        seen=(1, 3, 4),
        banned=(6,),
        end_id=0,
        min_frames=9,
        age=3,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_draws_follow_the_plain_definition(case: Case) -> None:
    chances = plain_distribution(case)
    if case.expected_support is not None:
        assert tuple(np.flatnonzero(chances)) == case.expected_support
    ids = many(case)
    assert set(ids) <= set(np.flatnonzero(chances))
    assert fits(ids, chances) > LEAST_P


@pytest.mark.parametrize("vary", ["seed", "age", "stream", "codebook"])
@pytest.mark.parametrize("name", ["plain", "top-k then top-p"])
def test_the_distribution_holds_over_every_part_of_the_key(name: str, vary: str) -> None:
    assert fits(many(CASES[name], vary), plain_distribution(CASES[name])) > LEAST_P


@pytest.mark.parametrize("name", ["cold", "top-k", "top-p", "penalty", "banned"])
def test_a_wrong_distribution_would_show(name: str) -> None:
    """The test has the power to tell each rule from its absence."""
    wrong = plain_distribution(CASES["plain"])
    ids = many(CASES[name])
    assert stats.chisquare(np.bincount(ids, minlength=12), wrong * len(ids)).pvalue < 1e-12


def test_a_vocabulary_of_real_size_is_drawn_evenly_enough() -> None:
    """Cumulative sums over 3072 ids in f32 lose none of them."""
    g = torch.Generator().manual_seed(1)
    case = Case((torch.randn(3072, generator=g) * 0.5).tolist(), temperature=0.9)
    chances = plain_distribution(case)
    groups = np.argsort(np.argsort(chances)) * 40 // 3072
    ids = []
    for part in range(5):  # 2000 rows of logits at a time
        rows = rows_of(case, 2000)
        rows.seed.copy_(torch.arange(2000) + 2000 * part)
        ids.append(drawn(case, rows))
    counts = np.bincount(groups[np.concatenate(ids)], minlength=40)
    expected = np.bincount(groups, weights=chances) * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > LEAST_P


def test_codebook_0_and_the_others_have_their_own_settings() -> None:
    case = Case(LOGITS)
    rows = rows_of(case, NUM_DRAWS)
    rows.seed.copy_(torch.arange(NUM_DRAWS))
    rows.temperature[1] = 0.5
    rows.top_k[1] = 3
    rows.top_p[1] = 0.9
    other = replace(case, temperature=0.5, top_k=3, top_p=0.9)
    assert fits(drawn(case, rows, 0), plain_distribution(case)) > LEAST_P
    for codebook in (1, 2, 15):
        assert fits(drawn(case, rows, codebook), plain_distribution(other)) > LEAST_P


def test_rows_side_by_side_keep_their_own_settings() -> None:
    cases = [c for c in CASES.values() if len(c.logits) == 12 and not c.banned and c.end_id < 0]
    each = 2400
    rows = Rows(each * len(cases), 8, NUM_BOOKS, torch.device("cpu"))
    seen = torch.zeros(len(rows.age), 12, dtype=torch.bool)
    rows.seed.copy_(torch.arange(len(rows.age)))
    for i, c in enumerate(cases):
        own = slice(i, None, len(cases))
        rows.temperature[:, own], rows.top_k[:, own] = c.temperature, c.top_k
        rows.top_p[:, own], rows.penalty[own] = c.top_p, c.penalty
        seen[own, list(c.seen)] = True
    logits = torch.tensor(LOGITS).expand(len(rows.age), -1).contiguous()
    ids = Sampler(rows)(logits, 0, None, seen).numpy()
    assert len(cases) > 8
    for i, c in enumerate(cases):
        assert fits(ids[i :: len(cases)], plain_distribution(c)) > LEAST_P


def test_the_penalty_is_off_where_no_ids_are_given() -> None:
    rows = rows_of(Case(LOGITS, penalty=5.0), 200)
    rows.seed.copy_(torch.arange(200))
    logits = torch.tensor(LOGITS).expand(200, -1).contiguous()
    free = Sampler(rows)(logits, 0)
    rows.penalty.fill_(1.0)
    assert torch.equal(free, Sampler(rows)(logits, 0))


def test_seating_hands_a_rows_settings_to_the_sampler() -> None:
    """A job's settings and key reach the draws: the same as by hand."""
    said = segment("run", seed=2**62 + 12345, attempt=3, index=7)
    prompt = FakeLM().prepare(said)
    assert isinstance(prompt, PreparedPrompt)
    draw = DrawSettings((0.7, 1.4), (5, 9), (0.9, 0.8), 1.2)
    table = SlotTable(3, 100)
    owners = [
        table.take(make_job(replace(prompt, draw=d), FakeLM().spec))
        for d in (prompt.draw, draw, prompt.draw)
    ]
    rows = Rows(3, 300, NUM_BOOKS, torch.device("cpu"))
    rows.age.fill_(55)
    rows.finish.fill_(2)
    rows.seat(owners)
    slot = owners[1].seat.slot
    assert rows.age.tolist() == [0, 0, 0]
    assert rows.finish.tolist() == [0, 0, 0]
    assert rows.active.all()
    assert rows.cap[slot] == owners[1].job.cap_frames
    assert rows.seed[slot] == 2**62 + 12345
    assert rows.stream[slot] == stream_id(7, 3)
    assert rows.top_k[:, slot].tolist() == [5, 9]
    torch.testing.assert_close(rows.temperature[:, slot], torch.tensor([0.7, 1.4]))
    torch.testing.assert_close(rows.top_p[:, slot], torch.tensor([0.9, 0.8]))
    assert rows.penalty[slot] == pytest.approx(1.2)


def test_streams_of_segments_and_attempts_are_all_different() -> None:
    streams = {stream_id(s, a) for s in range(500) for a in range(12)}
    assert len(streams) == 500 * 12
    assert max(streams) < 2**32


EVEN = Case([0.0] * 8)


@pytest.mark.parametrize("vary", ["seed", "age", "stream"])
def test_neighbours_in_the_key_are_independent(vary: str) -> None:
    """Pairs a step apart in one part of the key fill the 8 x 8 table evenly."""
    ids = many(EVEN, vary)
    for lag in (1, 2, 3, 16):
        pairs = np.bincount(ids[:-lag] * 8 + ids[lag:], minlength=64)
        assert stats.chisquare(pairs).pvalue > LEAST_P
        correlation = np.corrcoef(ids[:-lag], ids[lag:])[0, 1]
        assert abs(correlation) < 4 / NUM_DRAWS**0.5


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (0, 15), (7, 8)])
def test_codebooks_of_a_frame_are_independent(pair: tuple[int, int]) -> None:
    rows = rows_of(EVEN, NUM_DRAWS)
    rows.seed.copy_(torch.arange(NUM_DRAWS) * 31)
    first, second = (drawn(EVEN, rows, q) for q in pair)
    pairs = np.bincount(first * 8 + second, minlength=64)
    assert stats.chisquare(pairs).pvalue > LEAST_P
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / NUM_DRAWS**0.5


def test_a_frame_and_the_next_are_independent_in_every_codebook() -> None:
    rows = rows_of(EVEN, NUM_DRAWS // 4)
    rows.seed.copy_(torch.arange(len(rows.seed)))
    for codebook in (0, 1, 9):
        rows.age.fill_(4)
        now = drawn(EVEN, rows, codebook)
        rows.age.fill_(5)
        then = drawn(EVEN, rows, codebook)
        assert stats.chisquare(np.bincount(now * 8 + then, minlength=64)).pvalue > LEAST_P


@pytest.mark.parametrize("vary", ["seed", "age", "stream", "codebook"])
def test_the_uniforms_behind_the_draws_are_uniform(vary: str) -> None:
    """Of 250 equal ids, the one drawn is the uniform in steps of 0.004."""
    ids = many(Case([0.0] * 250), vary)
    assert stats.chisquare(np.bincount(ids // 5, minlength=50)).pvalue > LEAST_P
    assert stats.chisquare(np.bincount(ids, minlength=250)).pvalue > LEAST_P


def test_large_seeds_count_in_full() -> None:
    """Seeds that differ only above bit 32 draw differently."""
    rows = rows_of(EVEN, NUM_DRAWS)
    rows.seed.copy_(torch.arange(NUM_DRAWS) << 32)
    assert stats.chisquare(np.bincount(drawn(EVEN, rows), minlength=8)).pvalue > LEAST_P


def test_one_sampler_draws_afresh_in_every_frame() -> None:
    """Frame after frame through one sampler, each codebook: as if each had its own sampler."""
    rows = rows_of(EVEN, 200)
    rows.seed.copy_(torch.arange(200))
    logits = torch.zeros(200, 8)
    kept = Sampler(rows)
    frames = []
    for age in range(4):
        rows.age.fill_(age)
        for codebook in range(3):
            ids = kept(logits, codebook)
            np.testing.assert_array_equal(ids.numpy(), drawn(EVEN, rows, codebook))
            frames.append(ids.numpy().tobytes())
    rows.seed.add_(1000)  # all slots were seated anew
    rows.age.fill_(0)
    np.testing.assert_array_equal(kept(logits, 0).numpy(), drawn(EVEN, rows, 0))
    assert len(set(frames)) == len(frames)


def test_a_draw_does_not_depend_on_slot_or_neighbours() -> None:
    case = CASES["top-k then top-p"]
    rows = rows_of(case, 64)
    rows.seed.copy_(torch.arange(64) * 7 + 1)
    rows.age.copy_(torch.arange(64) % 5)
    together = drawn(case, rows)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    moved = rows_of(case, 64)
    moved.seed.copy_(rows.seed[order])
    moved.age.copy_(rows.age[order])
    np.testing.assert_array_equal(drawn(case, moved), together[order.numpy()])
    for slot in range(0, 64, 9):
        alone = rows_of(case, 1)
        alone.seed.copy_(rows.seed[slot : slot + 1])
        alone.age.copy_(rows.age[slot : slot + 1])
        assert drawn(case, alone)[0] == together[slot]
