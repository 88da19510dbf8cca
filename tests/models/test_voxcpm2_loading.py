"""VoxCPM2 checkpoints are read strictly: configuration, weights in every official format, text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ttsbatch.errors import ModelError
from ttsbatch.models import open_card
from ttsbatch.models.tensor_specs import num_parameters
from ttsbatch.models.voxcpm2.config import CONTROL_IDS, parse_config, read_config
from ttsbatch.models.voxcpm2.model import load
from ttsbatch.models.voxcpm2.official import official_json, random_config
from ttsbatch.models.voxcpm2.prompt import PromptBuilder, Spoken, one_line
from ttsbatch.models.voxcpm2.specs import main_specs, vae_specs
from ttsbatch.models.voxcpm2.tokenizer import CharTokenizer
from ttsbatch.models.voxcpm2.weights import fold_weight_norm, read_main, read_vae

FIXTURE = Path(__file__).parents[1] / "data" / "voxcpm2_tiny"
META = json.loads((FIXTURE / "meta.json").read_text("utf8"))
CONFIG = read_config(FIXTURE)
RAW = json.loads((FIXTURE / "config.json").read_text("utf8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint to damage."""
    out = tmp_path / "voxcpm2"
    out.mkdir()
    for name in ("config.json", "model.safetensors", "audiovae.pth", "tokenizer.json"):
        shutil.copyfile(FIXTURE / name, out / name)
    return out


def test_the_official_size_is_that_of_the_published_checkpoint() -> None:
    config = random_config()
    main = main_specs(config)
    assert len(main) == 577
    assert num_parameters(main) == 2_290_004_544
    assert len(vae_specs(config.vae)) == 311
    assert num_parameters(vae_specs(config.vae)) == 94_213_954
    assert config.patch_rate_hz == 6.25
    assert config.patch_samples_out == 7680


def test_a_card_says_what_rows_may_ask_for() -> None:
    card = open_card(str(FIXTURE))
    assert (card.family, card.sample_rate_hz, card.num_codebooks) == ("voxcpm2", 48_000, 0)
    assert (card.speaks_auto, card.needs_reference, len(card.languages)) == (True, False, 30)
    assert {"instruct", "ref_audio", "ref_text", "guidance", "steps"} <= card.options
    assert not {"temperature", "top_k"} & card.options
    assert open_card("random:voxcpm2").path is None


def test_the_hash_of_a_card_follows_the_pickled_weights(folder: Path) -> None:
    before = open_card(str(folder)).content_hash
    with (folder / "audiovae.pth").open("r+b") as f:
        f.seek(4000)
        f.write(b"changed")
    assert open_card(str(folder)).content_hash != before


def set_at(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a config with one value changed, or taken out where `value` is None."""
    raw = json.loads(json.dumps(raw))
    *parents, last = path.split(".")
    section = raw
    for name in parents:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("architecture", "voxcpm", "architecture is 'voxcpm'"),
        ("lm_config", None, "lm_config is missing"),
        ("lm_config.kv_channels", None, "lm_config.kv_channels is missing"),
        ("lm_config.hidden_size", "48", "expected int"),
        ("lm_config.use_mup", True, "only False"),
        ("lm_config.num_key_value_heads", 3, "multiple of 3"),
        ("lm_config.vocab_size", 100, "expected above 104"),
        ("lm_config.rope_scaling.type", "linear", "only 'longrope'"),
        ("lm_config.rope_scaling.short_factor", [1.0], "list of 8 numbers"),
        ("residual_lm_no_rope", False, "only True"),
        ("dit_config.cfm_config.solver", "midpoint", "only 'euler'"),
        ("dit_config.kv_channels", 8, "must be equal"),
        ("encoder_config.num_layers", 0, "1 or more"),
        ("feat_dim", 32, "must be equal"),
        ("audio_vae_config.decoder_rates", [8, 6], "must be equal"),
        ("audio_vae_config.depthwise", False, "only True"),
        ("audio_vae_config.decoder_dim", 100, "multiple of 64"),
    ],
)
def test_a_config_that_is_not_built_for_says_so(path: str, value: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(set_at(RAW, path, value), "config.json")


def test_the_official_config_is_read() -> None:
    config = parse_config(official_json(), "official")
    assert (config.lm.num_layers, config.residual.num_layers, config.dit.num_layers) == (28, 8, 12)
    assert config.max_positions == 8192
    assert config.rope.scale == 1.0


def test_a_folder_of_the_first_version_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(set_at(RAW, "architecture", "voxcpm")), "utf8")
    with pytest.raises(ModelError, match="known families"):
        open_card(str(folder))


def damage(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return apply


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("stop_head.weight"), "1 tensor missing: stop_head.weight"),
        (lambda t: t.update(lora_a=torch.zeros(1)), "1 tensor unexpected: lora_a"),
        (
            lambda t: t.update({"base_lm.norm.weight": torch.zeros(3)}),
            r"base_lm.norm.weight \[3\] instead of \[48\]",
        ),
    ],
)
def test_wrong_tensors_are_named(folder: Path, change: Any, words: str) -> None:
    damage(change)(folder / "model.safetensors")
    with pytest.raises(ModelError, match=words):
        read_main(folder, CONFIG)


def test_wrong_tensors_of_the_vae_are_named(folder: Path) -> None:
    state = torch.load(folder / "audiovae.pth", weights_only=True)
    del state["state_dict"]["encoder.fc_logvar.bias"]
    state["state_dict"]["more"] = torch.zeros(1)
    torch.save(state, folder / "audiovae.pth")
    with pytest.raises(ModelError, match=r"missing: encoder.fc_logvar.bias.*unexpected: more"):
        read_vae(folder, CONFIG.vae)


def test_rate_boundaries_of_the_file_must_be_those_of_the_config(folder: Path) -> None:
    state = torch.load(folder / "audiovae.pth", weights_only=True)
    state["state_dict"]["decoder.sr_bin_boundaries"] += 1
    torch.save(state, folder / "audiovae.pth")
    with pytest.raises(ModelError, match="sr_bin_boundaries"):
        read_vae(folder, CONFIG.vae)


@pytest.mark.parametrize("wrapped", [True, False])
def test_weights_in_the_other_official_formats_are_the_same(folder: Path, wrapped: bool) -> None:
    main, vae = read_main(folder, CONFIG), read_vae(folder, CONFIG.vae)
    torch.save({"state_dict": main} if wrapped else main, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    whole = torch.load(folder / "audiovae.pth", weights_only=True)["state_dict"]
    save_file(whole, folder / "audiovae.safetensors")
    (folder / "audiovae.pth").write_bytes(b"not read where there are safetensors")
    for ours, theirs in ((read_main(folder, CONFIG), main), (read_vae(folder, CONFIG.vae), vae)):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("name", ["model.safetensors", "audiovae.pth", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"\x80\x04damaged"])
def test_a_missing_or_damaged_file_is_named(folder: Path, name: str, content: bytes | None) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=name):
        load(open_card(str(folder)), torch.device("cpu"), torch.float32)


def test_a_pickle_that_runs_code_is_refused(folder: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"state_dict": {"x": Evil()}}, folder / "audiovae.pth")
    with pytest.raises(ModelError, match=r"audiovae.pth: cannot read"):
        read_vae(folder, CONFIG.vae)
    assert not (tmp_path / "ran").exists()


def test_weight_norm_is_folded_along_all_but_the_first_dimension() -> None:
    v = torch.randn(3, 4, 5)
    g = torch.rand(3, 1, 1) + 1
    folded = fold_weight_norm({"a.weight_v": v, "a.weight_g": g, "a.bias": torch.ones(3)})
    assert folded.keys() == {"a.weight", "a.bias"}
    torch.testing.assert_close(folded["a.weight"].flatten(1).norm(dim=1), g.flatten())


# ---------------------------------------------------------------------- text


def tokenizer() -> CharTokenizer:
    return CharTokenizer(FIXTURE, CONFIG.vocab_size)


@pytest.mark.parametrize("case", META["tokenization"], ids=lambda c: c["text"])
def test_token_ids_equal_the_goldens(case: dict[str, Any]) -> None:
    assert tokenizer().encode(case["text"]) == case["ids"]


@pytest.mark.parametrize("text", ["</s>", "<s>hello<unk>", "<|im_end|> <0x65>", "▁", "\x00e"])
def test_text_never_becomes_a_control_token(text: str) -> None:
    ids = tokenizer().encode(text)
    assert ids
    assert not {1, 2, *CONTROL_IDS} & set(ids)


def test_a_vocabulary_entry_on_a_control_id_is_never_spoken(folder: Path) -> None:
    raw = json.loads((folder / "tokenizer.json").read_text("utf8"))
    vocab = raw["model"]["vocab"]
    vocab["<0x62>"], vocab["b"] = vocab["b"], vocab["<0x62>"]  # now the letter b has id 101
    assert vocab["b"] == 101
    (folder / "tokenizer.json").write_text(json.dumps(raw), "utf8")
    assert CharTokenizer(folder, CONFIG.vocab_size).encode("ab") == [259, 260, 0]


def test_a_tokenizer_of_more_ids_than_the_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"holds id 306; config.json has 306"):
        CharTokenizer(FIXTURE, 306)


def test_white_space_is_one_blank_and_instructions_stand_in_parentheses() -> None:
    assert one_line(" a \n\t b ") == "a b"
    builder = PromptBuilder(CONFIG, tokenizer())
    ids = builder.build(Spoken("hello\nworld", instruct=" soft "), 2.0, 10).token_ids
    assert ids.tolist() == [*tokenizer().encode("(soft)hello world"), 101]
