"""A switch for the benches: operations take their plain torch reference, on whatever device."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from ttsbatch import kernels


@contextmanager
def kernels_on(fused: bool, but: tuple[str, ...] = ("sampler",)) -> Iterator[None]:
    """Unfused: every operation takes its reference, but for those of the modules `but`.

    The sampler is one: greedily it gives the same ids, and its reference sorts all logits.
    """
    if fused:
        yield
        return
    modules = [
        importlib.import_module(f"{kernels.__name__}.{m.name}")
        for m in pkgutil.iter_modules(kernels.__path__)
        if not m.ispkg and m.name not in but
    ]
    with ExitStack() as patches:
        for module in modules:
            if hasattr(module, "runs_kernel"):
                patches.enter_context(patch.object(module, "runs_kernel", lambda tensor: False))
        yield
