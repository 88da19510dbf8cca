"""Reading and checking a checkpoint's tensors, strictly, and random stand-ins for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ttsbatch.counts import counted
from ttsbatch.errors import ModelError
from ttsbatch.models.tensor_specs import TensorSpec


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU.

    Raises:
        ModelError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except FileNotFoundError as e:
        raise ModelError(f"{path}: no such file; expected the weights of the checkpoint") from e
    except (OSError, SafetensorError) as e:
        raise ModelError(f"{path}: cannot read the weights: {e}") from e


def check_tensors(
    state: Mapping[str, Tensor], specs: Mapping[str, TensorSpec], source: str
) -> None:
    """Compare names and shapes.

    Raises:
        ModelError: with every name that is missing, unexpected or of another shape.
    """
    problems = [
        *_listed("missing", sorted(specs.keys() - state.keys())),
        *_listed("unexpected", sorted(state.keys() - specs.keys())),
        *_listed(
            "of another shape than the config says",
            [
                f"{k} {list(state[k].shape)} instead of {list(specs[k].shape)}"
                for k in sorted(specs.keys() & state.keys())
                if tuple(state[k].shape) != specs[k].shape
            ],
        ),
    ]
    if problems:
        raise ModelError(f"{source}: " + "; ".join(problems))


def _listed(what: str, names: list[str]) -> Iterable[str]:
    if names:
        yield f"{counted(len(names), 'tensor')} {what}: {', '.join(names)}"


def random_weights(
    specs: Mapping[str, TensorSpec], generator: torch.Generator, device: torch.device | str
) -> dict[str, Tensor]:
    """Make float32 stand-ins on the device; `generator` must live there too."""
    weights = {}
    for name, spec in specs.items():
        if spec.std:
            weights[name] = torch.randn(spec.shape, generator=generator, device=device)
            weights[name].mul_(spec.std).add_(spec.mean)
        else:
            weights[name] = torch.full(spec.shape, spec.mean, device=device)
    return weights
