"""Which model a name means: `open_card` without weights and without torch; `FAMILIES` loads.

A new family is one folder and one entry of `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ttsbatch.errors import ModelError
from ttsbatch.models.hub import fetch_config, fetch_weights, is_hub_id, read_model_type
from ttsbatch.models.protocol import CodecLM, ReferenceEncoders, Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.types import Demand, ModelCard

if TYPE_CHECKING:
    import torch

EMBEDDED = "hibari"
RANDOM = "random:"


@dataclass(frozen=True, slots=True)
class Family:
    """A model family. Each function imports the family's modules when it is called.

    `load_speaker` or `load_codec_lm` is given: a family that speaks by itself, or one for the
    slot engine.
    """

    open_card: Callable[[str], ModelCard]  # folder or `random:NAME` -> card
    load_speaker: Callable[[ModelCard, EnginePlan], Speaker] | None = None
    load_codec_lm: Callable[[ModelCard, torch.device, torch.dtype, Demand], CodecLM] | None = None
    load_encoders: Callable[[ModelCard, torch.device], ReferenceEncoders] | None = None
    random_prefix: str | None = None  # `random:` names that begin so are this family's
    check_plan: Callable[[EnginePlan], None] | None = None  # PlanError for what it has no use for
    typical_speed: Callable[[EnginePlan], float] | None = None  # measured, audio-s/s


def _hibari_card(_where: str) -> ModelCard:
    from ttsbatch.models.hibari.card import open_card

    return open_card()


def _hibari_load(card: ModelCard, plan: EnginePlan) -> Speaker:
    from ttsbatch.models.hibari.model import load

    return load(card, plan)


def _hibari_check_plan(plan: EnginePlan) -> None:
    from ttsbatch.models.hibari.card import check_engine_plan

    check_engine_plan(plan)


def _hibari_speed(plan: EnginePlan) -> float:
    from ttsbatch.models.hibari.card import typical_speed

    return typical_speed(plan)


def _qwen3_card(where: str) -> ModelCard:
    from ttsbatch.models.qwen3_tts.card import open_card

    return open_card(where)


def _qwen3_load(
    card: ModelCard, device: torch.device, dtype: torch.dtype, _demand: Demand
) -> CodecLM:
    from ttsbatch.models.qwen3_tts.model import load

    return load(card, device, dtype)


def _qwen3_encoders(card: ModelCard, device: torch.device) -> ReferenceEncoders:
    from ttsbatch.models.qwen3_tts.encoders import load_encoders

    return load_encoders(card, device)


def _voxcpm2_card(where: str) -> ModelCard:
    from ttsbatch.models.voxcpm2.card import open_card

    return open_card(where)


def _voxcpm2_load(
    card: ModelCard, device: torch.device, dtype: torch.dtype, demand: Demand
) -> CodecLM:
    from ttsbatch.models.voxcpm2.model import load

    return load(card, device, dtype, demand)


def _voxcpm2_encoders(card: ModelCard, device: torch.device) -> ReferenceEncoders:
    from ttsbatch.models.voxcpm2.encoders import load_encoders

    return load_encoders(card, device)


FAMILIES: dict[str, Family] = {
    "hibari": Family(
        _hibari_card,
        load_speaker=_hibari_load,
        check_plan=_hibari_check_plan,
        typical_speed=_hibari_speed,
    ),
    "qwen3_tts": Family(
        _qwen3_card,
        load_codec_lm=_qwen3_load,
        load_encoders=_qwen3_encoders,
        random_prefix="qwen3-tts",
    ),
    "voxcpm2": Family(
        _voxcpm2_card,
        load_codec_lm=_voxcpm2_load,
        load_encoders=_voxcpm2_encoders,
        random_prefix="voxcpm2",
    ),
}
"""`model_type` or `architecture` of a checkpoint's config.json -> family."""


def open_card(model: str | None) -> ModelCard:
    """What can be known of a model without its weights.

    Args:
        model: None or "hibari" (embedded), `random:NAME`, a checkpoint folder, or a hub id
            `org/name`, of which only the small files are downloaded.

    Raises:
        ModelError: no such model, an unknown family, files missing or damaged.
    """
    if model is None or model == EMBEDDED:
        return FAMILIES[EMBEDDED].open_card(EMBEDDED)
    if model.startswith(RANDOM):
        return _random_family(model).open_card(model)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _folder_family(folder).open_card(str(folder))
    if folder.exists():
        raise ModelError(f"{model}: a file; expected the folder of a checkpoint")
    if is_hub_id(model):
        folder = fetch_config(model)
        card = _folder_family(folder).open_card(str(folder))
        # The folder is named by its commit, which says more than a hash of what is there so far.
        return replace(card, name=model, content_hash=f"{model}@{folder.name}")
    raise ModelError(
        f"{model}: no such folder or model; expected {EMBEDDED}, {RANDOM}NAME, a checkpoint "
        "folder, or a hub id such as Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    )


def fetch_missing(card: ModelCard) -> None:
    """Download the weights, where the card is that of a hub id and they are not here yet.

    Raises:
        ModelError: they cannot be had.
    """
    if card.path is not None and is_hub_id(card.name):
        fetch_weights(card.name, commit=Path(card.path).name)


def check_engine_plan(card: ModelCard, plan: EnginePlan) -> None:
    """See that the engine options fit the model, before it is loaded.

    Raises:
        PlanError: an engine option that the family has no use for.
    """
    check_plan = FAMILIES[card.family].check_plan
    if check_plan is not None:
        check_plan(plan)


def typical_speed(card: ModelCard, plan: EnginePlan) -> float | None:
    """Audio seconds per second to expect, from measurements; None where there are none yet."""
    speed = FAMILIES[card.family].typical_speed
    return None if speed is None else speed(plan)


def _random_family(model: str) -> Family:
    name = model.removeprefix(RANDOM).lower()
    for family in FAMILIES.values():
        if family.random_prefix and name.startswith(family.random_prefix):
            return family
    known = ", ".join(f"{RANDOM}{f.random_prefix}…" for f in FAMILIES.values() if f.random_prefix)
    raise ModelError(f"{model}: no such family; known random models: {known}")


def _folder_family(folder: Path) -> Family:
    model_type = read_model_type(folder)
    checkpoints = {name: f for name, f in FAMILIES.items() if name != EMBEDDED}
    if model_type not in checkpoints:
        raise ModelError(
            f"{folder}/config.json: model_type is {model_type!r}; "
            f"known families: {', '.join(checkpoints)}"
        )
    return checkpoints[model_type]
