"""One VoxCPM2 patch of many slots, run in different ways: eager, compiled, as one CUDA graph.

    python -m recipes.bench.flow_steps [--slots 64,256] [--json FILE]

First the whole step, each way in milliseconds: our kernels as one graph should be the fastest. Then
LocDiT alone (its solver, all evaluations of a patch), all slots at once and row by row; `off` is
the largest difference to our kernels over the largest latent. What is compiled is plain torch (see
`flow_plain.py`), `layers` those of all stacks; these ways come last, and one that fails or takes
longer than `--limit` seconds leaves the others as they are.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from recipes.bench.flow_plain import Compiled, in_plain_torch
from recipes.bench.flow_results import Results, numbers, open_model, parser, synchronize
from ttsbatch.bench.parts import bench_step, release
from ttsbatch.kernels.bench.timing import replay_us
from ttsbatch.models.voxcpm2.model import GUIDANCE, VoxCPM2

COMPILED: dict[Compiled, str] = {
    "nothing": "plain torch",
    "layers": "plain torch, layers compiled",
    "forward": "plain torch, LocDiT's forward compiled",
    "solve": "plain torch, LocDiT's solver compiled",
}
REPEATS = 5


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--slots", type=numbers, default=[64, 256])
    p.add_argument("--context", type=int, default=150, help="mean positions of the step")
    p.add_argument("--frames", type=int, default=16, help="timed ones")
    p.add_argument("--limit", type=float, default=240, help="seconds for a compiled line")
    p.add_argument("--compiled", nargs="*", choices=COMPILED, default=list(COMPILED))
    p.add_argument("--backend", default="inductor", help="of torch.compile")
    args = p.parse_args()
    model = open_model(args)
    results = Results(model, args.json)
    with torch.inference_mode():
        for slots in args.slots:
            whole_steps(model, slots, args, results)
            locdit_alone(model, slots, args, results)


def whole_steps(model: VoxCPM2, slots: int, args: argparse.Namespace, results: Results) -> None:
    """A line for each way to run a whole step."""

    def step_ms(use_graphs: bool) -> float:
        with TemporaryDirectory() as folder:
            where = (slots, args.context, {"steps": args.steps}, Path(folder), args.frames)
            return bench_step(model, *where, use_graphs=use_graphs).extra["step_ms"]

    if model.device.type == "cuda":
        with noted("step: our kernels, one CUDA graph", results, slots) as line:
            line["ms"] = step_ms(use_graphs=True)
    with noted("step: our kernels, eager", results, slots) as line:
        line["ms"] = step_ms(use_graphs=False)
    for compiled in args.compiled:
        with (
            noted(f"step: {COMPILED[compiled]}", results, slots) as line,
            limited(args.limit),
            in_plain_torch(model, compiled, args.backend),
        ):
            line["ms"] = step_ms(use_graphs=False)


def locdit_alone(model: VoxCPM2, slots: int, args: argparse.Namespace, results: Results) -> None:
    """A line for each way to make a patch of latents from noise."""
    release(model)
    cuda, dit = model.device.type == "cuda", model.network.dit
    inputs = solver_inputs(model, slots, args.steps)
    ours = dit.solve(*inputs)

    def line_of(
        name: str, call: Callable[..., Tensor], inputs: tuple[Any, ...], limit_s: float = 0.0
    ) -> None:
        with noted(f"LocDiT: {name}", results, slots) as line, limited(limit_s):
            line["ms"] = milliseconds(call, inputs, model.device)
            line["off"] = off(call(*inputs), ours)

    line_of("our kernels, eager", dit.solve, inputs)
    line_of("our kernels, eager, row by row", row_by_row(dit.solve), inputs)
    if cuda:
        with noted("LocDiT: our kernels, one CUDA graph", results, slots) as line:
            line["ms"] = replay_us(dit.solve, [inputs], 1)[0] / 1e3
        with noted("LocDiT: a graph of one row, row by row", results, slots) as line:
            one = solver_inputs(model, 1, args.steps)
            line["ms"] = slots * replay_us(dit.solve, [one], 8)[0] / 1e3
    for compiled in args.compiled:
        with in_plain_torch(model, compiled, args.backend) as plain:
            name = COMPILED[compiled]
            line_of(name, plain.dit.solve, inputs, args.limit)
            if cuda and compiled == "solve":
                graph = noted(f"LocDiT: {name}, one CUDA graph", results, slots)
                with graph as line, limited(args.limit):
                    line["ms"] = replay_us(plain.dit.solve, [inputs], 1)[0] / 1e3


def solver_inputs(model: VoxCPM2, slots: int, steps: int) -> tuple[Any, ...]:
    """What `LocDiT.solve` takes, of the official guidance."""
    g = torch.Generator(model.device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=g, device=model.device).to(model.dtype)

    c = model.config
    return (
        normal(slots, c.patch_size, c.vae.latent_dim),
        normal(slots, 2, c.dit.hidden_size),
        normal(slots, c.patch_size, c.vae.latent_dim),
        torch.full((slots,), GUIDANCE, device=model.device),
        torch.full((slots,), steps, device=model.device),
        model.network.dit.schedule(steps),
    )


def row_by_row(solve: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The solver called for one row after the other."""

    def each(*inputs: Any) -> Tensor:
        *tensors, schedule = inputs
        rows = range(len(tensors[0]))
        return torch.cat([solve(*(t[i : i + 1] for t in tensors), schedule) for i in rows])

    return each


def milliseconds(call: Callable[..., Any], inputs: tuple[Any, ...], device: torch.device) -> float:
    """Of a call, the mean of some; the first ones, which compile, are not counted."""
    for _ in range(2):
        call(*inputs)
    synchronize(device)
    started = time.perf_counter()
    for _ in range(REPEATS):
        call(*inputs)
    synchronize(device)
    return 1e3 * (time.perf_counter() - started) / REPEATS


def off(found: Tensor, expected: Tensor) -> float:
    """Largest difference over largest value."""
    return float((found - expected).abs().max() / expected.abs().max())


@contextmanager
def noted(name: str, results: Results, slots: int) -> Iterator[dict[str, Any]]:
    """A line of results, filled inside; what goes wrong there is its result."""
    line: dict[str, Any] = {"slots": slots}
    try:
        yield line
    except Exception as e:  # whatever a compiler raises
        line["failed"] = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    results.add(name, **line)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError where it takes longer, whatever a compiler makes of it; 0: no limit.

    Again after as long, since Python ignores one that is raised in a finalizer.
    """
    error: TimeoutError | None = None

    def over(_signal: int, _frame: FrameType | None) -> None:
        nonlocal error
        error = TimeoutError(f"took more than {seconds:g} s")
        raise error

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    except Exception:
        if error is not None:
            raise error from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    main()
