"""How far bfloat16 is from float32 on the same weights, with the fused kernels and without.

    python -m recipes.bench.numerics [--model random:qwen3-tts-1.7b-customvoice]

Float32 in plain torch speaks greedily and each of its frames is recorded. The other runs are driven
with its codes, so that every step of theirs has the same past, and their logits are compared step
by step. Last, both bfloat16 runs speak freely. Ends with exit code 1 where the fused run is further
from float32 than the unfused one by more than `DRIFT`. Takes about a minute on an H200.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import ttsbatch
from recipes.bench.plain_torch import kernels_on
from ttsbatch.bench.parts import pages_for
from ttsbatch.bench.workload import workload
from ttsbatch.engine.budget import make_job
from ttsbatch.engine.graphs import BucketGraphs
from ttsbatch.engine.rows import Rows
from ttsbatch.engine.sampling import Sampler
from ttsbatch.engine.slots import Job, SlotTable
from ttsbatch.models.protocol import PAGE_SIZE, PreparedPrompt, Rules
from ttsbatch.models.qwen3_tts.card import open_card
from ttsbatch.models.qwen3_tts.model import NEVER, Qwen3TTS, load
from ttsbatch.types import Sampling, Segment, Utterance

DRIFT = 1.5  # fused error over unfused error, relative RMS
GROUPS = {"codebook 0": slice(0, 1), "predictor": slice(1, None)}
HEAD = (
    f"{'against float32 unfused':<28}{'logits of':<12}{'rel. RMS mean':>14}{'max':>9}"
    f"{'max abs mean':>14}{'max':>8}{'equal codes':>13}{'crossed':>9}"
)


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run of F frames of S rows said and thought."""

    codes: Tensor  # [F, S, Q] int64 greedy choice of every step, followed or not
    first: Tensor  # [F, S, 1, V] f32 logits of codebook 0
    rest: Tensor  # [F, S, Q-1, Vc] f32 logits of the predictor

    def logits(self, group: str) -> Tensor:
        """[F, S, books, ids] of "codebook 0" or "predictor"."""
        return self.first if group == "codebook 0" else self.rest


class RecordingDraw:
    """Greedy draws by the engine's sampler, recorded; given codes are returned instead."""

    def __init__(self, rows: Rows, model: Qwen3TTS, given: Tensor | None) -> None:
        """Buffers of one frame, at fixed addresses as graphs want them.

        Args:
            rows: ages, and the settings of the sampler.
            model: for sizes.
            given: [F, S, Q] int64 codes to return, by the age of each row; None: the drawn ones.
        """
        slots, w = len(rows.age), model.weights
        self._rows, self._given, self._sampler = rows, given, Sampler(rows)
        self._slots = torch.arange(slots, device=rows.device)
        num_books, num_ids = w.predictor_heads.shape[:2]
        self.first = torch.zeros(slots, 1, len(w.head), device=rows.device)
        self.rest = torch.zeros(slots, num_books, num_ids, device=rows.device)
        self.codes = torch.zeros(slots, num_books + 1, dtype=torch.int64, device=rows.device)

    def __call__(
        self, logits: Tensor, codebook: int, rules: Rules | None = None, seen: Tensor | None = None
    ) -> Tensor:
        """One id per slot; the end token is never drawn, so that all rows stay in step."""
        kept = self.first[:, 0] if codebook == 0 else self.rest[:, codebook - 1]
        kept.copy_(logits)
        if rules is not None:
            rules = replace(rules, min_frames=NEVER)
        mine = seen.clone() if seen is not None else None
        taken = self.codes[:, codebook] = self._sampler(logits, codebook, rules, mine)
        if self._given is not None:
            age = self._rows.age.clamp(max=len(self._given) - 1)
            taken = self._given[:, :, codebook][age, self._slots]
        if seen is not None:
            seen.scatter_(1, taken[:, None], True)
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare bfloat16 with float32, step by step.")
    parser.add_argument("--model", default="random:qwen3-tts-1.7b-customvoice")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.fp32_precision = "ieee"
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, all unfused"
    print(f"ttsbatch {ttsbatch.__version__}, torch {torch.__version__}, {name}, {args.model}")
    with torch.inference_mode():
        ok = report(args.model, device, args.rows, args.frames)
    sys.exit(0 if ok else 1)


def report(name: str, device: torch.device, num_rows: int, num_frames: int) -> bool:
    """Print the comparison; whether the fused run is as near to float32 as the unfused one."""
    started = time.perf_counter()

    def say(what: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {what}", flush=True)

    card = open_card(name)
    wide = load(card, device, torch.float32)
    half = load(card, device, torch.bfloat16)
    check_same_weights(wide, half)
    say("loaded: bfloat16 weights are the float32 ones, rounded")
    jobs = make_jobs(wide, num_rows, num_frames)
    right = record(wide, jobs, num_frames, fused=False)
    say("float32, unfused")
    fused = record(half, jobs, num_frames, fused=True, given=right.codes)
    say("bfloat16, fused, driven")
    plain = record(half, jobs, num_frames, fused=False, given=right.codes)
    say("bfloat16, unfused, driven")
    free_fused = record(half, jobs, num_frames, fused=True).codes
    say("bfloat16, fused, free")
    free_plain = record(half, jobs, num_frames, fused=False).codes
    say("bfloat16, unfused, free")

    print(f"\n{num_rows} rows, {num_frames} frames, greedy, no repetition penalty\n{HEAD}")
    errors = compare("bfloat16 fused", fused, right)
    plain_errors = compare("bfloat16 unfused", plain, right)
    compare("bf16 fused to unfused", fused, plain)
    del fused, plain
    compare("float32 fused", record(wide, jobs, num_frames, True, right.codes), right)
    print(
        "\n'crossed' is the largest float32 lead of one id over another that a run turned round."
        "\nRandom weights lead by little, so equal codes understate what trained ones give:"
    )
    for group in GROUPS:
        lead = leads(right, group, half)
        print(f"  {group}: the best id leads the next by {lead.median():.4f} in the median")
    print("speaking freely, share of equal codes and first frame that differs (median of rows):")
    free = {
        "bfloat16 fused, unfused": (free_fused, free_plain),
        "bfloat16 fused, float32": (free_fused, right.codes),
        "bfloat16 unfused, float32": (free_plain, right.codes),
    }
    for pair, (a, b) in free.items():
        same = a == b
        until = same.all(dim=2).int().cumprod(dim=0).sum(dim=0)  # [S] frames before the first
        print(f"  {pair:<28}{same.float().mean():8.1%}{until.median():6d} of {num_frames}")
    ratios = {g: errors[g] / plain_errors[g] for g in GROUPS}
    print(
        "fused error over unfused error: "
        + ", ".join(f"{g} {x:.2f}" for g, x in ratios.items())
        + f" (at most {DRIFT})"
    )
    return max(ratios.values()) <= DRIFT


def check_same_weights(wide: Qwen3TTS, half: Qwen3TTS) -> None:
    """Matrices from both ends of the packing must be the float32 ones, rounded."""
    for part in ("talker", "predictor"):
        for a, b in zip(
            getattr(wide.weights, part).layers, getattr(half.weights, part).layers, strict=True
        ):
            for field in ("qkv", "out", "gate_up", "down"):
                if not torch.equal(getattr(a, field).to(torch.bfloat16), getattr(b, field)):
                    raise SystemExit(f"{part} {field}: the two dtypes have different weights")
    for field in ("head", "codes", "predictor_heads"):
        a, b = getattr(wide.weights, field), getattr(half.weights, field)
        if not torch.equal(a.to(torch.bfloat16), b):
            raise SystemExit(f"{field}: the two dtypes have different weights")


def make_jobs(model: Qwen3TTS, num_rows: int, num_frames: int) -> list[Job]:
    """Greedy rows of so many frames over texts of different lengths."""
    jobs = []
    for i, row in enumerate(workload(num_rows)):
        utterance = Utterance(
            id=row["id"],
            text=row["text"],
            spoken_text=row["text"],
            source="numerics",
            line=i + 1,
            voice=model.card.voices[i % len(model.card.voices)],
            language="en",
            seed=i,
            sampling=Sampling(temperature=0.0, repetition_penalty=1.0),
            max_seconds=num_frames / model.spec.frame_rate_hz,
        )
        prompt = model.prepare(Segment(utterance, 0, row["text"]))
        assert isinstance(prompt, PreparedPrompt)
        jobs.append(replace(make_job(prompt, model.spec), cap_frames=num_frames))
    return jobs


def record(
    model: Qwen3TTS, jobs: list[Job], num_frames: int, fused: bool, given: Tensor | None = None
) -> Recording:
    """Run the jobs together, a slot each.

    On a GPU the fused run replays a graph, as a run of the product does. The plain one runs
    eagerly, so that it depends on nothing else that is under test.
    """
    longest = max(j.prompt.num_positions for j in jobs) + num_frames
    longest = -(-longest // PAGE_SIZE) * PAGE_SIZE
    num_pages = pages_for(len(jobs), longest)
    state = model.new_state(len(jobs), num_pages, longest)
    rows = Rows(len(jobs), num_frames, model.spec.frame_width, model.device)
    draw = RecordingDraw(rows, model, given)

    def frame(bound: int) -> None:
        rows.advance(model.step(state, rows, draw, bound))

    graph = BucketGraphs("a frame", frame, model.device, [longest])
    if fused and model.device.type == "cuda":
        graph.capture(torch.cuda.Stream(model.device))
    slots = SlotTable(len(jobs), num_pages)
    owners = [slots.take(job) for job in jobs]
    place = [o.seat.slot for o in owners]
    assert place == list(range(len(jobs)))  # all runs compare slot by slot
    with kernels_on(fused):
        model.prefill(state, model.stage(state, [o.seat for o in owners]))
        rows.seat(owners)
        frames = []
        for _ in range(num_frames):
            graph.run(longest)
            frames.append((draw.codes.clone(), draw.first.clone(), draw.rest.clone()))
    if not bool((rows.age == num_frames).all()):
        raise SystemExit(f"rows of {rows.age.tolist()} frames; expected {num_frames} of each")
    return Recording(*(torch.stack(x) for x in zip(*frames, strict=True)))


def compare(name: str, run: Recording, right: Recording) -> dict[str, float]:
    """Print a line per group; the mean relative RMS error of each."""
    means = {}
    for group, books in GROUPS.items():
        found, expected = run.logits(group), right.logits(group)
        difference = found - expected
        size = expected.square().mean(dim=-1).sqrt()
        relative = difference.square().mean(dim=-1).sqrt() / size  # [F, S, books]
        furthest = difference.abs().amax(dim=-1)
        ours, theirs = run.codes[..., books], right.codes[..., books]
        lead = expected.gather(-1, theirs[..., None]) - expected.gather(-1, ours[..., None])
        means[group] = float(relative.mean())
        print(
            f"{name:<28}{group:<12}{means[group]:>14.2e}{relative.max():>9.1e}"
            f"{furthest.mean():>14.1e}{furthest.max():>8.0e}"
            f"{(ours == theirs).float().mean():>13.2%}{lead.max():>9.1e}",
            flush=True,
        )
    return means


def leads(right: Recording, group: str, model: Qwen3TTS) -> Tensor:
    """[F, S, books] by how much the best id that may be drawn leads the second."""
    logits = right.logits(group)
    if group == "codebook 0":
        banned = model._rules.banned.clone()
        banned[model.config.talker.codec_eos_id] = True
        logits = logits.masked_fill(banned, -torch.inf)
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


if __name__ == "__main__":
    main()
