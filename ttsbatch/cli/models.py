"""`ttsbatch models`: the models that this version knows."""

from __future__ import annotations

import json
from dataclasses import asdict

from ttsbatch.cli.options import AsJson


def models(as_json: AsJson = False) -> None:
    """List the known models with licence, size and sample rate."""
    from ttsbatch.cli.tables import print_table
    from ttsbatch.models.known import KNOWN_MODELS

    if as_json:
        print(json.dumps([asdict(m) for m in KNOWN_MODELS], indent=2))
        return
    rows = [
        (m.name, m.licence, size(m.num_parameters), f"{m.sample_rate_hz:,} Hz", m.what)
        for m in KNOWN_MODELS
    ]
    print_table(("model", "licence", "parameters", "rate", "what"), rows)


def size(num_parameters: int) -> str:
    """A number of parameters in millions or billions."""
    if num_parameters >= 1e9:
        return f"{num_parameters / 1e9:.2f} B"
    return f"{num_parameters / 1e6:.2f} M"
