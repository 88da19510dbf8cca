"""What the `flow_` benches share: arguments, the model, and a table that is a JSON file too."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from ttsbatch.bench.timing import describe
from ttsbatch.engine.device import choose_device, use_threads_for
from ttsbatch.models.voxcpm2.card import open_card
from ttsbatch.models.voxcpm2.model import NUM_STEPS, VoxCPM2, load
from ttsbatch.plan import make_engine_plan
from ttsbatch.types import Demand


def parser(about: str | None) -> argparse.ArgumentParser:
    """With the arguments that all of them take."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--model", default="random:voxcpm2")
    made.add_argument("--device", help="auto (default), cpu or cuda")
    made.add_argument("--dtype", help="auto (default), float32 or bfloat16")
    made.add_argument("--steps", type=int, default=NUM_STEPS, help="of the solver, in every row")
    made.add_argument("--json", type=Path, help="gets every line as soon as it is measured")
    return made


def numbers(text: str) -> list[int]:
    """The whole numbers of "64,256"."""
    return [int(n) for n in text.split(",")]


def open_model(args: argparse.Namespace) -> VoxCPM2:
    """The model that the arguments mean."""
    device, dtype = choose_device(make_engine_plan({"device": args.device, "dtype": args.dtype}))
    card = open_card(args.model)
    use_threads_for(device, card.num_parameters)
    return load(card, device, dtype, Demand(steps=frozenset({args.steps})))


class Results:
    """Lines of a table, printed as they come; the JSON file has those so far, come what may."""

    def __init__(self, model: VoxCPM2, file: Path | None) -> None:
        self.about = describe(model.card.name, model.device, model.dtype)
        self.lines: list[dict[str, Any]] = []
        self._file = file
        print("  ".join(f"{k} {v}" for k, v in self.about.items()))

    def add(self, name: str, **values: Any) -> None:
        """Take a line in."""
        self.lines.append({"name": name, **values})
        shown = (f"{k} {v:,.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{name:<52}{'  '.join(shown)}", flush=True)
        if self._file is not None:
            text = json.dumps({"about": self.about, "lines": self.lines}, indent=1)
            self._file.write_text(text + "\n", "utf8")


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
