"""Which model a name means, and what is said where it means none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from ttsbatch.errors import ModelError
from ttsbatch.models import FAMILIES, fetch_missing, open_card
from ttsbatch.models.hub import SMALL_FILES, WEIGHT_FILES, is_hub_id

TINY = Path(__file__).parents[1] / "data" / "qwen3_tts_tiny"


def test_no_name_is_the_embedded_model() -> None:
    assert open_card(None) == open_card("hibari")
    assert open_card(None).family == "hibari"


def test_a_folder_is_opened_by_its_model_type() -> None:
    card = open_card(str(TINY / "base"))
    assert (card.family, card.needs_reference) == ("qwen3_tts", True)


def test_a_random_name_finds_its_family() -> None:
    card = open_card("random:qwen3-tts-0.6b-customvoice")
    assert (card.family, card.path) == ("qwen3_tts", None)


def test_every_family_loads_one_way() -> None:
    for family in FAMILIES.values():
        assert (family.load_speaker is None) != (family.load_codec_lm is None)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "no config.json"),
        ("{", "JSON"),
        ("[]", "model_type"),
        ('{"model_type": "bert"}', "known families: qwen3_tts"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, config: str | None, words: str
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=words):
        open_card(str(tmp_path))


@pytest.mark.parametrize("name", ["nothing", "./a/b", "random:x", "a/b/c", "/no/where"])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=r"expected|known"):
        open_card(name)


def test_a_hub_id_downloads_the_small_files_first_and_the_weights_when_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = tmp_path / "snapshots" / "0123abcd"
    commit.parent.mkdir()
    commit.symlink_to(TINY / "custom-voice")
    calls: list[dict[str, Any]] = []

    def download(repo: str, **options: Any) -> str:
        calls.append({"repo": repo, **options})
        return str(commit)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    card = open_card("org/tiny")
    assert (card.name, card.content_hash) == ("org/tiny", "org/tiny@0123abcd")
    fetch_missing(card)
    assert calls == [
        {"repo": "org/tiny", "allow_patterns": SMALL_FILES},
        {"repo": "org/tiny", "revision": "0123abcd", "allow_patterns": WEIGHT_FILES},
    ]
    assert json.loads((Path(card.path or "") / "config.json").read_text("utf8"))


def test_a_hub_that_cannot_be_reached_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, **options: Any) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelError, match=r"org/tiny.*cannot be reached"):
        open_card("org/tiny")


def test_hub_ids_have_one_slash() -> None:
    assert is_hub_id("Qwen/Qwen3-TTS-12Hz-1.7B-Base")
    assert not any(map(is_hub_id, ("hibari", "a/b/c", "./a", "a/", "../b")))
