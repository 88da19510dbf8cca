"""Two places where Triton is for one thread at a time; kernels are rehearsed on several.

Parsing: before Python 3.12 garbage is collected within `ast.parse`. If that lets in another thread
that parses, it is a SystemError (the depth of the AST is another's), and the kernel is left with a
key on disk that says nothing of its source.

Loading a launcher: in Triton 3.6 each signature has a C module of its own, all of one name. Loading
one a second time makes Python (3.11 to 3.13) write its functions into the module of that name that
was loaded last. If another thread has not taken the `launch` of that one out yet, its kernel is
launched from then on as if it had arguments of other types.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any


def make_safe_for_threads() -> None:
    """Put a lock around both, in place, or around what a later Triton has left of them."""
    from triton.runtime import JITFunction, build

    for owner in JITFunction.__mro__:
        if "parse" in vars(owner):
            owner.parse = _one_at_a_time(owner.parse)
            break
    load = getattr(build, "_load_module_from_path", None)
    if load is not None:
        build._load_module_from_path = _one_at_a_time(_forgetting(load))


def _one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.RLock()

    @wraps(function)
    def locked(*args: Any) -> Any:
        with lock:
            return function(*args)

    return locked


def _forgetting(load: Callable[[str, str], ModuleType]) -> Callable[[str, str], ModuleType]:
    """Loads a module as if none of its name had been: what was loaded before stays as it is."""

    @wraps(load)
    def loaded(name: str, path: str) -> ModuleType:
        sys.modules.pop(name, None)
        return load(name, path)

    return loaded
