"""The promises of a run, on a tiny checkpoint of every family: rows, refusals, resume, redo, files.

What depends on no model is tested with a fake one elsewhere.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from tests.families import (
    CODEC_LMS,
    FAMILIES,
    Family,
    Row,
    call,
    differ,
    lines,
    made_rows,
    samples,
    unlike,
    write_corpus,
)
from tests.sinks.fake_run import content
from ttsbatch import models, production
from ttsbatch.audio.resample import resampled_length
from ttsbatch.corpus.languages import language_code
from ttsbatch.sinks.shards import ShardSink
from ttsbatch.text.segment import split_text
from ttsbatch.types import OPTION_FIELDS

codec_lms_only = pytest.mark.parametrize("family", CODEC_LMS, ids=lambda f: f.name, indirect=True)
"""What the embedded model, which draws nothing and is slow to load, shows in tests of its own."""

EXTREMES: dict[str, Row] = {
    "off": {"top_k": 0},
    "any": {"top_k": 10**19},
    "float": {"top_k": 1e300},
    "greedy": {"temperature": 0},
    "cold": {"temperature": 1e-308},
    "cool": {"temperature": 1e-38},
    "hot": {"temperature": 100, "top_p": 1e-308},
    "again": {"repetition_penalty": 1e-308},
    "never": {"repetition_penalty": 100},
    "unguided": {"guidance": 1e-308},
    "guided": {"guidance": 100, "steps": 2},
    "endless": {"max_seconds": 1e308},
    "late": {"seed": 2**63 - 1},
}


@pytest.fixture(params=FAMILIES, ids=lambda f: f.name)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture(scope="module")
def outputs() -> dict[str, Path]:
    return {}


@pytest.fixture
def made(
    family: Family, outputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with a corpus of every kind of row and the OUT of it; not to be changed."""
    if family.name not in outputs:
        folder = tmp_path_factory.mktemp(family.name)
        corpus = write_corpus(folder / "rows.jsonl", family.corpus())
        family.synth(corpus, folder / "out")
        outputs[family.name] = folder
    return outputs[family.name]


def test_every_kind_of_row_is_made_in_whole_frames_at_the_rate_of_the_model(
    family: Family, made: Path
) -> None:
    rows, rate_hz = made_rows(made / "out"), family.card.frame_rate_hz
    assert rows.keys() == samples(made / "out").keys() == {r["id"] for r in family.rows}
    asked = {r["id"]: r.get("frames") for r in family.rows}
    languages = {r["id"]: language_code(r["language"]) for r in family.rows if "language" in r}
    assert {n: m["language"] for n, m in rows.items()} == {n: "auto" for n in rows} | languages
    for name, line in rows.items():
        assert line["sample_rate"] == family.sample_rate_hz
        assert line["num_samples"] > 0
        if rate_hz is None:
            continue
        assert line["num_samples"] * rate_hz == line["num_frames"] * line["sample_rate"]
        assert line["num_frames"] <= asked[name]
        if line["finish_reason"] == "length":
            assert line["num_frames"] == asked[name]
    assert rows["short"]["num_samples"] != rows["long"]["num_samples"]


def test_no_two_rows_sound_alike(family: Family, made: Path) -> None:
    found = samples(made / "out")
    if family not in CODEC_LMS:  # which draws nothing
        del found["same"]
    assert len({x.tobytes() for x in found.values()}) == len(found)


def test_codes_are_those_of_the_kept_frames(family: Family, made: Path) -> None:
    for line in made_rows(made / "out").values():
        assert ("codes_filepath" in line) == family.has_codes
        if family.has_codes:
            codes = np.load(made / "out" / line["codes_filepath"])
            assert codes.shape == (line["num_frames"], family.card.num_codebooks)


@codec_lms_only
def test_a_row_alone_is_the_row_among_others(family: Family, made: Path, tmp_path: Path) -> None:
    for name in ("long", family.rows[-1]["id"]):
        corpus = write_corpus(tmp_path / f"{name}.jsonl", [family.row(name)])
        family.synth(corpus, tmp_path / name, "--slots", "1")
        assert unlike(tmp_path / name, made / "out", family) == {
            r["id"] for r in family.rows if r["id"] != name
        }


def test_a_rerun_changes_no_byte_and_verify_finds_nothing_wrong(family: Family, made: Path) -> None:
    before = content(made / "out")
    family.synth(made / "rows.jsonl", made / "out")
    found = json.loads(call("verify", made / "out", "--json", exit_code=0).stdout)
    assert (found["findings"], found["utterances"]["made"]) == ({}, len(family.rows))
    assert content(made / "out") == before


def test_changed_settings_are_refused_and_change_no_byte(family: Family, made: Path) -> None:
    before = content(made / "out")
    for change in family.changes:
        refused = family.synth(made / "rows.jsonl", made / "out", *change, exit_code=2)
        assert "begun with other settings" in refused.stderr, change
        assert f"{change[0].removeprefix('--')} was" in refused.stderr
    assert content(made / "out") == before


@codec_lms_only
def test_edited_rows_are_made_again_and_no_other(family: Family, tmp_path: Path) -> None:
    plain = {k: v for k, v in family.row("short").items() if k != "id"} | {"seed": 11}
    names = ["left", *family.edits]
    corpus = write_corpus(tmp_path / "rows.jsonl", [{"id": n} | plain for n in names])
    family.synth(corpus, tmp_path / "out")
    before = content(tmp_path / "out")
    edits = [{"id": n} | plain | dict(family.edits.get(n, {})) for n in names]
    # What is no matter of the audio may change with them.
    family.synth(write_corpus(corpus, [*edits[1:], edits[0] | {"mood": "calm"}]), tmp_path / "out")
    now, rows = content(tmp_path / "out"), made_rows(tmp_path / "out")
    assert rows.keys() == set(names)
    path = rows["left"]["audio_filepath"]
    assert now[path] == before[path]
    found = samples(tmp_path / "out")
    for name in family.edits:
        assert differ(found[name], found["left"], 10), name
    call("verify", tmp_path / "out", exit_code=0)


@codec_lms_only
def test_a_row_is_redone_with_its_next_take_another_seed_or_as_it_was_edited(
    family: Family, tmp_path: Path
) -> None:
    corpus = write_corpus(tmp_path / "rows.jsonl", [family.row(n) for n in ("short", "one")])
    out = tmp_path / "out"
    family.synth(corpus, out)
    takes = [samples(out)]

    def redo(*options: str) -> None:
        call("redo", out, "--id", "short", "--quiet", *options, exit_code=0)
        takes.append(samples(out))
        assert not differ(takes[-1]["one"], takes[0]["one"])
        call("verify", out, exit_code=0)

    redo()
    assert made_rows(out)["short"]["attempts"] == 2
    redo("--seed", "77")
    assert (made_rows(out)["short"]["seed"], made_rows(out)["short"]["attempts"]) == (77, 1)
    assert len({t["short"].tobytes() for t in takes}) == 3
    before = content(out)
    family.synth(corpus, out)
    assert content(out) == before
    name, edit = list(family.edits.items())[-1]
    write_corpus(corpus, [family.row("short") | edit, family.row("one")])
    redo()
    assert made_rows(out)["short"]["attempts"] == 1
    assert differ(takes[-1]["short"], takes[-2]["short"], 10), name
    before = content(out)
    family.synth(corpus, out)
    assert content(out) == before


def test_rows_that_cannot_be_made_stop_no_other_and_check_finds_what_synth_rejects(
    family: Family, tmp_path: Path
) -> None:
    plain = {"text": "hello."} | family.plain
    refused = {i: {"id": i} | plain | fields for i, (fields, _) in family.refused.items()}
    rows = [family.row("short"), *refused.values(), {"id": "empty", **plain, "text": " "}]
    corpus = write_corpus(tmp_path / "rows.jsonl", [*rows, family.row("one")])
    family.synth(corpus, tmp_path / "out", exit_code=7)
    failures = lines(tmp_path / "out" / "failures.jsonl")
    expected = {i: reason for i, (_, reason) in family.refused.items()} | {"empty": "empty_text"}
    assert {i: f["reason"] for i, f in failures.items()} == expected
    assert all(f["message"] and f["row"]["id"] == i for i, f in failures.items())
    assert made_rows(tmp_path / "out").keys() == {"short", "one"}
    counts = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))["utterances"]
    assert (counts["in"], counts["made"]) == (len(expected) + 2, 2)
    late = sum(reason == "too_long" for reason in expected.values())  # known to the tokenizer only
    assert (counts["rejected"], counts["failed"]) == (len(expected) - late, late)
    found = json.loads(call("check", corpus, *family.model_option, "--json", exit_code=7).stdout)
    assert found["rows"]["rejected"] == counts["rejected"]
    before = content(tmp_path / "out")
    family.synth(corpus, tmp_path / "out", exit_code=7)
    assert content(tmp_path / "out") == before
    call("verify", tmp_path / "out", exit_code=0)


@codec_lms_only
def test_numbers_that_are_legal_but_extreme_make_their_rows_and_stop_no_other(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = family.load()
    monkeypatch.setattr(model, "spec", replace(model.spec, max_frames=20))  # quick at any seconds
    monkeypatch.setitem(
        models.FAMILIES,
        family.card.family,
        replace(models.FAMILIES[family.card.family], load_codec_lm=lambda *_: model),
    )
    plain = {k: v for k, v in family.row("short").items() if k != "id"}
    unknown = OPTION_FIELDS - family.card.options
    extremes = {name: row for name, row in EXTREMES.items() if not unknown & row.keys()}
    rows = [{"id": name} | plain | row for name, row in ({"plain": {}} | extremes).items()]
    family.synth(write_corpus(tmp_path / "rows.jsonl", rows), tmp_path / "out")
    assert made_rows(tmp_path / "out").keys() == {r["id"] for r in rows}
    found = samples(tmp_path / "out")
    for name, same in {"any": "off", "float": "off", "cold": "greedy", "cool": "greedy"}.items():
        if name in extremes:
            assert not differ(found[name], found[same], family.tolerance_lsb), name
    call("verify", tmp_path / "out", exit_code=0)


def test_options_that_the_model_has_no_use_for_exit_2(family: Family, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "rows.jsonl", [family.row("short")])
    for options in family.refused_options:
        result = family.synth(corpus, tmp_path / "out", *options, exit_code=2)
        assert options[0] in result.stderr
        assert not (tmp_path / "out").exists()


def test_report_adds_up(family: Family, made: Path) -> None:
    report = json.loads(call("report", made / "out", "--json", exit_code=0).stdout)
    rows = made_rows(made / "out").values()
    assert report["utterances"]["in"] == report["utterances"]["made"] == len(family.rows)
    assert report["audio_seconds"] == pytest.approx(sum(m["duration"] for m in rows))
    seconds = sum(m["num_samples"] for m in rows) / family.sample_rate_hz
    assert report["audio_seconds"] == pytest.approx(seconds)
    ended = {r: n for r, n in report["finish_reasons"].items() if n}
    assert sum(ended.values()) == len(family.rows)
    if family in CODEC_LMS:
        assert {"prepare", "prefill", "decode", "codec", "write"} <= report["stages"].keys()
        assert 0 < report["slots"]["mean_busy"] <= report["slots"]["count"] == 2


def test_voices_says_rate_and_options(family: Family) -> None:
    model = [] if family.model is None else [family.model]
    card = json.loads(call("voices", *model, "--json", exit_code=0).stdout)
    assert set(card["options"]) == family.card.options
    text = call("voices", *model, exit_code=0).stdout
    assert f"{family.sample_rate_hz:,} Hz" in text
    assert [o for o in family.card.options if o not in text] == []


@pytest.mark.parametrize("to", ["hf", "nemo", "webdataset"])
def test_export_takes_every_row_as_it_is(
    family: Family, made: Path, tmp_path: Path, to: str
) -> None:
    path = tmp_path / "x"
    done = call(
        "export", made / "out", "--to", to, "-o", path, "--include-flagged", "--json", exit_code=0
    )
    found = json.loads(done.stdout)
    assert (found["rows"], found["not_made"]) == (len(family.rows), 0)
    rows = made_rows(made / "out")
    assert found["audio_seconds"] == pytest.approx(sum(m["duration"] for m in rows.values()))
    if to == "nemo":
        listed = [json.loads(x) for x in (path / "manifest.jsonl").read_text("utf8").splitlines()]
        for line, row in zip(listed, rows.values(), strict=True):
            info = soundfile.info(path / line["audio_filepath"])
            assert (info.frames, info.samplerate) == (row["num_samples"], family.sample_rate_hz)
            assert line["duration"] == row["duration"]
    elif to == "hf":
        (shard,) = path.rglob("*.parquet")
        files = [a["bytes"] for a in pq.read_table(shard).column("audio").to_pylist()]
        assert files == [(made / "out" / m["audio_filepath"]).read_bytes() for m in rows.values()]


@codec_lms_only
@pytest.mark.parametrize(("format", "rate_hz"), [("flac", None), ("opus", None), ("mp3", 22_050)])
def test_other_formats_and_rates_hold_the_same_speech(
    family: Family, made: Path, tmp_path: Path, format: str, rate_hz: int | None
) -> None:
    names = ("short", "one")
    corpus = write_corpus(tmp_path / "rows.jsonl", [family.row(n) for n in names])
    rate = () if rate_hz is None else ("--sample-rate", str(rate_hz))
    family.synth(corpus, tmp_path / "out", "--format", format, *rate)
    call("verify", tmp_path / "out", exit_code=0)
    spoken, found = samples(made / "out"), samples(tmp_path / "out")
    for name in names:
        wave, to_hz = spoken[name], rate_hz or family.sample_rate_hz
        assert made_rows(tmp_path / "out")[name]["sample_rate"] == to_hz
        assert len(found[name]) == resampled_length(len(wave), family.sample_rate_hz, to_hz)
        if format == "flac":
            assert not differ(found[name], wave, family.tolerance_lsb)
        assert np.abs(found[name]).max() > np.abs(wave).max() / 4


@codec_lms_only
def test_ctrl_c_finishes_what_is_in_flight_and_the_rerun_makes_the_rest(
    family: Family, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ShardSink.write

    def write_and_interrupt(*args: Any) -> None:
        write(*args)
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ShardSink, "write", _once(write_and_interrupt, write))
        result = family.synth(made / "rows.jsonl", out, "--slots", "1", exit_code=130)
    assert "the same command resumes" in result.stderr
    first = made_rows(out)
    assert 1 <= len(first) < len(family.rows)
    before = content(out)
    family.synth(made / "rows.jsonl", out)
    now = content(out)
    assert all(now[m["audio_filepath"]] == before[m["audio_filepath"]] for m in first.values())
    assert unlike(out, made / "out", family) == set()


@codec_lms_only
def test_a_long_text_is_spoken_in_pieces_of_which_one_is_redone(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(production, "split_text", partial(split_text, budget_s=2.0))
    monkeypatch.setattr(production, "MIN_ROOM", 0.2)  # a row that is cut off all the sooner
    pieces = ["The boat leaves today.", "It may rain tonight."]
    bound = {"max_seconds": 1.6}
    row = family.row("short") | {"text": " ".join(pieces)} | bound
    out = tmp_path / "out"
    family.synth(write_corpus(tmp_path / "rows.jsonl", [row]), out)
    old = made_rows(out)["short"]
    assert [s["text"] for s in old["segments"]] == pieces
    # Not a sample more than pieces and pause, where pieces end in quiet of their own.
    spoken = sum(s["num_samples"] for s in old["segments"])
    assert spoken <= old["num_samples"] <= spoken + family.sample_rate_hz // 2
    assert old["duration"] <= bound["max_seconds"]
    before = samples(out)["short"]
    call("redo", out, "--id", "short", "--segment", "1", "--quiet", exit_code=0)
    new = made_rows(out)["short"]
    assert [s["attempt"] for s in new["segments"]] == [0, 1]
    assert new["segments"][0]["num_samples"] == old["segments"][0]["num_samples"]
    assert differ(samples(out)["short"], before)
    call("verify", out, exit_code=0)


def _once(first: Callable[..., None], then: Callable[..., None]) -> Callable[..., None]:
    calls: list[None] = []

    def call(*args: Any) -> None:
        calls.append(None)
        (first if len(calls) == 1 else then)(*args)

    return call
