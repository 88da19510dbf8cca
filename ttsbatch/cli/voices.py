"""`ttsbatch voices MODEL`: what a model speaks with and in."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ttsbatch.cli.options import AsJson


def voices(
    model: Annotated[
        str | None, typer.Argument(help="As --model of synth; without it the embedded model.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the voices, languages and row fields of a model."""
    from ttsbatch.cli.models import size
    from ttsbatch.cli.tables import print_pairs
    from ttsbatch.models import open_card

    card = open_card(model)
    if as_json:
        fields = {
            "name": card.name,
            "family": card.family,
            "licence": card.licence,
            "num_parameters": card.num_parameters,
            "sample_rate_hz": card.sample_rate_hz,
            "voices": list(card.voices),
            "default_voice": card.default_voice,
            "languages": list(card.languages),
            "options": sorted(card.options),
            "needs_reference": card.needs_reference,
        }
        print(json.dumps(fields, indent=2, ensure_ascii=False))
        return
    if card.voices:
        spoken = ", ".join(card.voices)
    elif card.needs_reference:
        spoken = "none of its own; each row needs a ref_audio"
    else:
        ways = {"instruct": "describe one in instruct", "ref_audio": "clone a ref_audio"}
        can = " or ".join(way for field, way in ways.items() if field in card.options)
        spoken = f"none of its own; a row can {can}, else the model chooses"
    print(f"{card.name}: {card.family}, {size(card.num_parameters)} parameters, {card.licence}")
    print_pairs(
        [
            ("sample rate", f"{card.sample_rate_hz:,} Hz"),
            ("voices", spoken),
            ("languages", ", ".join(card.languages)),
            ("row options", ", ".join(sorted(card.options)) or "none"),
        ]
    )
