"""The rules of a row."""

import json
from pathlib import Path
from typing import Any

import pytest

from ttsbatch.corpus.fields import near_field
from ttsbatch.corpus.rows import RowChecker, check_defaults, derived_seed
from ttsbatch.errors import PlanError
from ttsbatch.plan import RowDefaults
from ttsbatch.types import Failure, ModelCard, Record, Sampling, Utterance

from .conftest import BOTH, CLONES, DESIGN, ENGLISH, VOICES, card, record, scanned, tone


def made(model: ModelCard = ENGLISH, defaults: RowDefaults | None = None, **row: Any) -> Utterance:
    row = {"id": "a", "text": "Some text."} | row
    found = RowChecker(defaults or RowDefaults(), model).resolve(record(**row))
    assert isinstance(found, Utterance), found
    return found


def refused(
    model: ModelCard = ENGLISH, defaults: RowDefaults | None = None, **row: Any
) -> tuple[str, str]:
    row = {"id": "a", "text": "Some text."} | row
    found = RowChecker(defaults or RowDefaults(), model).resolve(record(**row))
    assert isinstance(found, Failure), found
    assert found.stage == "validate"
    json.dumps([found.row, found.message], allow_nan=False)
    return found.reason, found.message


def test_a_row_of_text_alone_gets_every_default() -> None:
    u = made(text="Hello  there.\n")
    assert (u.text, u.spoken_text) == ("Hello  there.\n", "Hello there.")
    assert (u.voice, u.language, u.split) == ("heart", "auto", True)
    assert (u.sampling, u.max_seconds, u.file_name, u.extra) == (Sampling(), None, None, {})


def test_the_row_goes_before_the_options() -> None:
    defaults = RowDefaults(
        voice="ryan", language="de", instruct="calm", sampling=Sampling(0.5, 10), max_seconds=9
    )
    u = made(VOICES, defaults)
    assert (u.voice, u.language, u.instruct, u.max_seconds) == ("Ryan", "de", "calm", 9)
    assert u.sampling == Sampling(0.5, 10)
    u = made(
        VOICES, defaults, voice="VIVIAN", language="en", instruct="loud", top_k=3, max_seconds=1
    )
    assert (u.voice, u.language, u.instruct, u.max_seconds) == ("Vivian", "en", "loud", 1.0)
    assert u.sampling == Sampling(0.5, 3)


def test_the_language_option_is_for_rows_without_the_field() -> None:
    defaults = RowDefaults(language="German", voice="Ryan")
    assert made(VOICES, defaults).language == "de"
    assert made(VOICES, defaults, language=None).language == "auto"
    assert made(VOICES, defaults, language="auto").language == "auto"


@pytest.mark.parametrize("value", ["", 0.5, True, ["a"], {"a": 1}, "\ud800"])
def test_an_id_is_a_string_or_a_whole_number(value: Any) -> None:
    checker = RowChecker(RowDefaults(), ENGLISH)
    found = checker.resolve(record(id=value, text="Some text."))
    assert isinstance(found, Failure)
    assert found.utterance_id is None
    assert found.reason in ("bad_value", "wrong_type", "bad_unicode")


@pytest.mark.parametrize(
    ("value", "expected"), [(7, "7"), (7.0, "7"), (-1, "-1"), (10**20, f"1{'0' * 20}")]
)
def test_a_number_becomes_a_decimal_string(value: Any, expected: str) -> None:
    assert made(id=value).id == expected


def test_a_missing_id_is_made_of_source_and_line() -> None:
    def ids(*sources: str) -> list[str]:
        checker = RowChecker(RowDefaults(), ENGLISH)
        rows = [Record(s, n, {"text": "Some text."}, ".") for s in sources for n in (1, 12)]
        return [u.id for u in map(checker.resolve, rows) if isinstance(u, Utterance)]

    first = ids("x/corpus.jsonl", "y/corpus.jsonl")
    assert len(set(first)) == 4
    assert first[:2] == ids("x/corpus.jsonl")
    assert first[1].startswith("corpus-")
    assert first[1].endswith("-000012")
    assert ids("-")[0].startswith("stdin-")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": None}, "missing_text"),
        ({"text": 42}, "wrong_type"),
        ({"text": ["a"]}, "wrong_type"),
        ({"text": ""}, "empty_text"),
        ({"text": "\u200b… 🙂"}, "empty_text"),
        ({"text": "a\ud800"}, "bad_unicode"),
        ({"voice": "\udc00"}, "bad_unicode"),
        ({"voice": 1}, "wrong_type"),
        ({"voice": "nobody"}, "unknown_voice"),
        ({"voice": ""}, "unknown_voice"),
        ({"language": 7}, "wrong_type"),
        ({"language": "xx-QQ"}, "unknown_language"),
        ({"language": ""}, "unknown_language"),
        ({"language": "th"}, "unsupported_language"),
        ({"seed": "7"}, "wrong_type"),
        ({"seed": True}, "wrong_type"),
        ({"seed": 0.5}, "wrong_type"),
        ({"seed": -1}, "bad_value"),
        ({"seed": 2**63}, "bad_value"),
        ({"seed": 10**4000}, "bad_value"),
        ({"temperature": "0.5"}, "wrong_type"),
        ({"temperature": -1}, "bad_value"),
        ({"temperature": float("nan")}, "bad_value"),
        ({"temperature": 10**400}, "bad_value"),
        ({"top_k": -1}, "bad_value"),
        ({"top_k": 1.5}, "wrong_type"),
        ({"top_p": 0}, "bad_value"),
        ({"top_p": 1.1}, "bad_value"),
        ({"repetition_penalty": 0}, "bad_value"),
        ({"max_seconds": 0}, "bad_value"),
        ({"max_seconds": 0.079}, "bad_value"),  # no room for a frame of 80 ms
        ({"max_seconds": float("inf")}, "bad_value"),
        ({"split": "false"}, "wrong_type"),
        ({"split": 0}, "wrong_type"),
        ({"file_name": ""}, "bad_value"),
        ({"file_name": 7}, "wrong_type"),
        ({"instruct": ["a"]}, "wrong_type"),
        ({"ref_audio": "a.wav"}, "unsupported_option"),
        ({"ref_text": "a"}, "unsupported_option"),
        ({"ref_audio": "a.wav", "voice": "Ryan"}, "unsupported_option"),
    ],
)
def test_a_faulty_row_is_refused_with_its_reason(row: dict[str, Any], reason: str) -> None:
    assert refused(VOICES, RowDefaults(voice="Ryan"), **row)[0] == reason


def test_a_row_without_text_names_the_fields_found() -> None:
    checker = RowChecker(RowDefaults(), ENGLISH)
    found = checker.resolve(record(id="a", sentence="x"))
    assert isinstance(found, Failure)
    assert (found.reason, found.utterance_id) == ("missing_text", "a")
    assert "id, sentence" in found.message
    assert found.row == {"id": "a", "sentence": "x"}


@pytest.mark.parametrize(
    "row", [{"instruct": "sad"}, {"temperature": 0.3, "top_k": 2}, {"max_seconds": 1}]
)
def test_an_option_without_a_use_is_refused(row: dict[str, Any]) -> None:
    reason, message = refused(ENGLISH, **row)
    assert reason == "unsupported_option"
    assert all(f'"{name}"' in message for name in row)


def test_whole_floats_and_whole_numbers_are_taken_for_each_other() -> None:
    u = made(VOICES, voice="Ryan", seed=7.0, top_k=5.0, temperature=1, instruct=" ")
    assert (u.seed, u.sampling.top_k, u.sampling.temperature) == (7, 5, 1.0)
    assert type(u.seed) is int
    assert type(u.sampling.temperature) is float
    assert u.instruct is None


def test_an_unknown_voice_is_refused_with_the_known_ones() -> None:
    assert refused(VOICES, voice="Vivan") == (
        "unknown_voice",
        "\"voice\" is 'Vivan'; known voices: Ryan, Vivian, Serena",
    )
    assert "no named voices" in refused(DESIGN, voice="Ryan")[1]


def test_a_model_with_several_voices_needs_one() -> None:
    reason, message = refused(VOICES)
    assert reason == "unknown_voice"
    assert "Ryan, Vivian, Serena" in message
    assert made(DESIGN).voice is None


def test_a_model_that_needs_a_language_refuses_auto() -> None:
    assert refused(card("strict", speaks_auto=False))[0] == "unsupported_language"


def test_the_derived_seed_depends_on_run_seed_and_id_alone() -> None:
    assert made().seed == made(text="Other.").seed == derived_seed(0, "a")
    seeds = {derived_seed(s, i) for s in range(20) for i in ("a", "b", "0")}
    assert len(seeds) == 60
    assert all(0 <= s < 2**63 for s in seeds)
    assert any(s >= 2**62 for s in seeds)
    assert made(seed=0).seed == 0
    assert derived_seed(0, "a") == 6841154156042874738


def test_other_fields_ride_along() -> None:
    u = made(meta={"book": "lamp", "tags": ["a", "b"]}, weight=0.25, none=None, sede=7)
    assert u.extra == {
        "meta": {"book": "lamp", "tags": ["a", "b"]},
        "weight": 0.25,
        "none": None,
        "sede": 7,
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sede", "seed"), ("seeed", "seed"), ("Text", "text"), ("ref-audio", "ref_audio"),
        ("voic", "voice"), ("languge", "language"), ("temprature", "temperature"), ("ID", "id"),
        ("topk", "top_k"), ("max seconds", "max_seconds"), ("refaudio", "ref_audio"),
        ("seed", None), ("note", None), ("idx", None), ("meta", None), ("speaker", None),
        ("tags", None), ("duration", None), ("", None),
    ],
)  # fmt: skip
def test_a_name_one_slip_away_is_noticed(name: str, near: str | None) -> None:
    assert near_field(name) == near


def test_a_near_miss_is_warned_about_once(data: Path) -> None:
    told: list[str] = []
    rows = data / "11_per_row_params.jsonl"
    both = scanned(rows, warn=told.append)
    assert [m for m in told if "sede" in m] == told
    assert len(told) == 1
    assert scanned(rows) == both


def test_unsupported_languages_are_warned_about_once_each(data: Path) -> None:
    told: list[str] = []
    path = data / "14_languages.jsonl"
    made, failed = scanned(path, path, model=DESIGN, warn=told.append, unsupported_language="warn")
    assert len(made) == 12
    assert {f.reason for f in failed.values()} == {"duplicate_id"}
    for code in ("th", "ar", "hi", "he", "yue", "el"):
        assert len([m for m in told if f"language {code} " in m]) == 1
    assert len(told) == 6
    assert made["lang-08"].language == "yue"


def test_a_reference_starts_from_the_folder_of_its_corpus(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    tone(tmp_path / "refs" / "a.wav", 1)
    checker = RowChecker(RowDefaults(), CLONES)
    for name in ("refs/a.wav", "refs\\a.wav", "./refs/../refs/a.wav", str(tmp_path / "refs/a.wav")):
        u = checker.resolve(record(str(tmp_path), id="a", text="x", ref_audio=name, ref_text="y"))
        assert isinstance(u, Utterance)
        assert u.ref_audio == str(tmp_path / "refs" / "a.wav")
        assert (u.ref_text, u.voice) == ("y", None)


def test_a_model_that_only_clones_needs_a_reference() -> None:
    assert refused(CLONES)[0] == "ref_missing"
    assert refused(CLONES, ref_text="words")[0] == "ref_missing"
    assert refused(CLONES, ref_audio="none.wav")[0] == "ref_missing"
    assert refused(CLONES, ref_audio="none.wav", voice="Ryan")[0] == "ref_and_voice"


def test_the_reference_option_is_for_rows_that_name_no_speaker(in_tmp: Path) -> None:
    tone(in_tmp / "a.wav", 1)
    tone(in_tmp / "b.wav", 1)
    defaults = RowDefaults(ref_audio="a.wav", ref_text="as said in a")
    u = made(BOTH, defaults)
    assert (u.ref_audio, u.ref_text, u.voice) == ("a.wav", "as said in a", None)
    u = made(BOTH, defaults, ref_audio="b.wav")
    assert (u.ref_audio, u.ref_text) == ("b.wav", None)
    u = made(BOTH, defaults, ref_text="better")
    assert (u.ref_audio, u.ref_text) == ("a.wav", "better")
    u = made(BOTH, defaults, voice="Ryan")
    assert (u.ref_audio, u.ref_text, u.voice) == (None, None, "Ryan")
    u = made(BOTH, RowDefaults(voice="Ryan"), ref_audio="b.wav")
    assert (u.ref_audio, u.voice) == ("b.wav", None)


EITHER = card(
    "either",
    options=frozenset({"instruct", "ref_audio", "ref_text"}),
    exclusive=(("instruct", "ref_text", "one style is enough"),),
)


def test_fields_that_a_model_cannot_have_together_are_refused_before_it_loads(in_tmp: Path) -> None:
    tone(in_tmp / "a.wav", 1)
    clip: dict[str, Any] = {"ref_audio": "a.wav", "ref_text": "as said"}
    wrong = '"instruct" and "ref_text" are both given; expected one: one style is enough'
    told = RowDefaults(instruct="soft")
    assert refused(EITHER, instruct="soft", **clip) == ("unsupported_option", wrong)
    assert refused(EITHER, told, **clip) == ("unsupported_option", wrong)
    continued = RowDefaults(ref_audio="a.wav", ref_text="as said")
    assert refused(EITHER, continued, instruct="soft") == ("unsupported_option", wrong)
    assert made(EITHER, told, ref_audio="a.wav").instruct == "soft"
    assert made(EITHER, told, ref_audio="a.wav", ref_text=" ").ref_text is None
    assert made(EITHER, **clip).ref_text == "as said"


@pytest.mark.parametrize(
    ("model", "defaults", "message"),
    [
        (ENGLISH, RowDefaults(instruct="sad"), "--instruct: english has no use"),
        (ENGLISH, RowDefaults(sampling=Sampling(top_k=1)), "--top-k: english has no use"),
        (ENGLISH, RowDefaults(max_seconds=1), "--max-seconds: english has no use"),
        (DESIGN, RowDefaults(max_seconds=0.05), "--max-seconds is 0.05; expected 0.08 or more"),
        (ENGLISH, RowDefaults(ref_audio="a.wav"), "--ref-audio: english has no use"),
        (ENGLISH, RowDefaults(voice="Ryan"), "--voice is 'Ryan'; known voices: heart"),
        (CLONES, RowDefaults(voice="Ryan"), "no named voices"),
        (ENGLISH, RowDefaults(language="xx"), "--language is 'xx'; expected an ISO"),
        (ENGLISH, RowDefaults(language="German"), "languages of english: en"),
        (CLONES, RowDefaults(ref_text="a"), "expected both"),
        (CLONES, RowDefaults(ref_audio="none.wav"), "--ref-audio: .*no such file"),
        (BOTH, RowDefaults(ref_audio="a.wav", voice="Ryan"), "one or the other"),
        (
            EITHER,
            RowDefaults(instruct="sad", ref_audio="a.wav", ref_text="a"),
            "--instruct and --ref-text: expected one or the other: one style",
        ),
    ],
)
def test_options_that_do_not_fit_the_model_are_a_plan_error(
    model: ModelCard, defaults: RowDefaults, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        check_defaults(defaults, model)


def test_options_that_fit_the_model_pass(in_tmp: Path) -> None:
    tone(in_tmp / "a.wav", 1)
    check_defaults(RowDefaults(ref_audio="a.wav", ref_text="x", language="eng"), CLONES)
    check_defaults(RowDefaults(voice="HEART", language="auto"), ENGLISH)
    check_defaults(RowDefaults(language="Thai"), ENGLISH, "warn")


def test_a_text_is_spoken_without_markup_and_with_its_numbers_in_words() -> None:
    u = made(text="**42** <|im_end|>boats", language="en")
    assert (u.text, u.spoken_text) == ("**42** <|im_end|>boats", "forty-two boats")


def test_without_normalization_a_text_is_only_cleaned() -> None:
    u = made(ENGLISH, RowDefaults(normalize=False), text="**42**  boats\u200b", language="en")
    assert u.spoken_text == "**42** boats"


@pytest.mark.parametrize(
    ("default", "spoken"), [(None, "12 Boote"), ("de", "zwölf Boote"), ("en", "twelve Boote")]
)
def test_an_auto_row_is_read_in_the_language_option(default: str | None, spoken: str) -> None:
    u = made(VOICES, RowDefaults(language=default, voice="Ryan"), text="12 Boote", language="auto")
    assert (u.language, u.spoken_text) == ("auto", spoken)


def test_an_auto_row_is_read_in_the_only_language_of_a_model() -> None:
    assert made(text="12 boats").spoken_text == "twelve boats"
