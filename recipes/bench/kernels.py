"""All kernel benches at the shapes of published models, on a CUDA device; one table, printed last.

    python -m recipes.bench.kernels [--slots 64,256,512] [--compiled 256] [--sweep]

Operations on whole clips have batches of their own; their compiled reference is timed where any of
`--slots` is in `--compiled`. Each line should show a kernel below both rivals, with an error of a
few bf16 roundings (below 2e-2; for `sample` the share of ids that differ, below 1e-2) or the script
ends with exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
from dataclasses import replace

import torch

from ttsbatch.kernels import bench
from ttsbatch.kernels.bench import local_attention, paged_attention
from ttsbatch.kernels.bench.timing import Row, Work, measure

OPERATIONS = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name != "timing"]


def max_error_of(work: Work) -> float:
    return 1e-2 if work.exact else 2e-2


def try_to_measure(work: Work) -> Row | str:
    """A row, or why there is none: the other kernels' lines still count."""
    try:
        return measure(work)
    except Exception as error:
        if work.compiled:
            print(f"{work.name}: not compiled: {error!r:.300}", file=sys.stderr)
            return try_to_measure(replace(work, compiled=False))
        return f"{work.name:<44} {error!r:.300}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Bench all kernels.")
    parser.add_argument("--slots", default="64,256,512", help="slot counts, with commas")
    parser.add_argument(
        "--compiled", default="256", help="slot counts at which the compiled reference is timed"
    )
    parser.add_argument("--sweep", action="store_true", help="also try tiles of attention")
    options = parser.parse_args()
    slots, compiled = (
        {int(number) for number in text.split(",") if number}
        for text in (options.slots, options.compiled)
    )

    begin = time.perf_counter()
    lines: list[str] = []
    wrong = 0
    if options.sweep:
        for num_slots in sorted(slots):
            lines += paged_attention.sweep(num_slots)[:10]
            lines += local_attention.sweep(num_slots)[:10]
    lines.append(Row.HEADER)
    for operation in OPERATIONS:
        module = importlib.import_module(f"{bench.__name__}.{operation}")
        batches = getattr(module, "BATCHES", None)
        for num_rows in batches or sorted(slots):
            # Each costs seconds of compilation.
            with_compiled = bool(slots & compiled) if batches else num_rows in compiled
            for work in module.works(num_rows):
                if not with_compiled:
                    work = replace(work, compiled=False)
                row = try_to_measure(work)
                ok = isinstance(row, Row) and row.max_error <= max_error_of(work)
                wrong += not ok
                lines.append(f"{row}{'' if ok else '  WRONG'}")
                print(lines[-1], file=sys.stderr)
            torch.cuda.empty_cache()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, f"{wrong} wrong")
    print("\n".join(lines))
    print(f"{time.perf_counter() - begin:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
