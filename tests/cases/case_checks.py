"""What holds for every run, and the named checks of expected.json. Each asserts, with a message."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cases.case_run import (
    DATA,
    EXPECTED,
    CaseRun,
    console_command,
    contents,
    read_lines,
    read_wav,
)

Check = Callable[[CaseRun, dict[str, Any]], None]


def fold(text: str) -> str:
    """Letters, digits and marks of a text, compatibility forms and case folded."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in text if unicodedata.category(c)[0] in "LNM")


def flat(text: str) -> str:
    """NFC with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --------------------------------------------------------------------- what holds for every run
def check_every_run(run: CaseRun) -> None:
    """Exit code, made and rejected rows, report and audio files."""
    assert run.exit_code in as_list(run.spec["exit"]), run.stderr[-600:]
    after = contents(run.work)
    outside = {k: v for k, v in after.items() if not k.startswith(f"{run.out}/")}
    assert outside == run.files_before, "a file outside OUT was touched"
    if not {0, 7} & set(as_list(run.spec["exit"])):
        assert not run.manifest
        return
    _check_made(run)
    _check_rejected(run)
    _check_report(run)
    _check_audio(run)
    for row_id, fields in run.spec.get("manifest", {}).items():
        for name, want in fields.items():
            got = run.by_id[row_id][name]
            same = got.casefold() == want.casefold() if name == "voice" else got == want
            assert same, f"{row_id}: {name} is {got!r}, expected {want!r}"


def _check_made(run: CaseRun) -> None:
    ids = [m["id"] for m in run.manifest]
    assert len(ids) == len(set(ids)), "an id twice in the manifest"
    made, settled = run.spec["made"], set(run.spec.get("open", []))
    rejected = {r["line"] for r in run.spec["rejected"]}
    if made == "all":
        gone = rejected | settled
        made = {n: str(r["id"]) for n, r in run.input_rows.items() if n not in gone}
    got = {m["line"]: m["id"] for m in run.manifest if m["line"] not in settled}
    if isinstance(made, dict):
        want = {int(line): row_id for line, row_id in made.items()}
        assert got.keys() == want.keys()
        for line, row_id in want.items():
            assert got[line]
            assert row_id in (None, got[line])
    else:
        assert sorted(got.values()) == sorted(made)
    for segmented in run.manifest:
        assert segmented["segments"]
        assert all({"text", "finish_reason"} <= s.keys() for s in segmented["segments"])


def _check_rejected(run: CaseRun) -> None:
    settled = set(run.spec.get("open", []))
    lines = [f["line"] for f in run.failures]
    assert len(lines) == len(set(lines)), "a line twice in failures.jsonl"
    got = {f["line"]: f for f in run.failures if f["line"] not in settled}
    want = {r["line"]: r for r in run.spec["rejected"]}
    assert got.keys() == want.keys()
    for line, rejected in want.items():
        failure = got[line]
        assert failure["reason"] in as_list(rejected["reason"]), failure
        assert rejected["id"] in (None, failure["id"]), failure
        assert failure["source"], failure
        assert failure["stage"], failure
        assert failure["message"], failure
    for line in settled:
        times = lines.count(line) + sum(m["line"] == line for m in run.manifest)
        assert times == 1, f"line {line} {times} times"


def _check_report(run: CaseRun) -> None:
    rows = json.loads((run.folder() / "report.json").read_text("utf8"))["utterances"]
    assert rows["made"] == len(run.manifest)
    assert rows["rejected"] + rows["failed"] == len(run.failures)
    assert rows["in"] == rows["made"] + rows["rejected"] + rows["failed"]
    assert rows["failed"] == 0 or run.spec.get("open")


def _check_audio(run: CaseRun) -> None:
    paths = [m["audio_filepath"] for m in run.manifest]
    assert len(paths) == len(set(paths))
    audio = run.folder() / "audio"
    there = {str(p.relative_to(run.folder())) for p in audio.rglob("*") if p.is_file()}
    assert there == set(paths)
    for made in run.manifest:
        samples, rate = read_wav(run.folder() / made["audio_filepath"])
        assert (len(samples), rate) == (made["num_samples"], made["sample_rate"])
        assert len(samples) > 0
        assert abs(made["duration"] - len(samples) / rate) < 1e-3


# --------------------------------------------------------------------------- commands run again
def same_exit_in_check(run: CaseRun, _: dict[str, Any]) -> None:
    assert run.invoke(run.arguments("check"))[0] == run.exit_code


def rerun_changes_nothing(run: CaseRun, _: dict[str, Any]) -> None:
    before = contents(run.folder())
    assert run.invoke(run.arguments())[0] == run.exit_code
    after = contents(run.folder())
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == []


def same_ids_again(run: CaseRun, _: dict[str, Any]) -> None:
    run.invoke(run.arguments(out="again"))
    again = read_lines(run.work / "again" / "manifest.jsonl")
    assert sorted(m["id"] for m in again) == sorted(run.by_id)


def same_rows_as(run: CaseRun, check: dict[str, Any]) -> None:
    other = replace(run, file=check["file"], out="other")
    other.run()
    fields = ("text", "spoken_text", "language", "voice", "seed", "num_samples")

    def rows(r: CaseRun) -> dict[str, list[Any]]:
        return {i: [m[f] for f in fields] for i, m in r.by_id.items()}

    assert rows(other) == rows(run)


def changed_setting_refused(run: CaseRun, check: dict[str, Any]) -> None:
    before = contents(run.folder())
    exit_code, stderr = run.invoke([*run.arguments(), *check["args"]])
    assert exit_code == 2
    option, value = check["args"]
    refusal = rf"begun with other settings: {option.removeprefix('--')} .*, now \W?{value}\b"
    assert re.search(refusal, stderr), stderr
    assert contents(run.folder()) == before


def survives_kills(run: CaseRun, check: dict[str, Any]) -> None:
    started = time.monotonic()
    command, env = console_command(run.arguments(out="whole"))
    subprocess.run(command, cwd=run.work, env=env, capture_output=True, check=False)
    span_s = time.monotonic() - started
    rng = random.Random(7)
    command, env = console_command(run.arguments(out="broken"))
    kills = 0
    for _ in range(check["times"]):
        process = subprocess.Popen(
            command, cwd=run.work, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(rng.uniform(0.1, 0.6) * span_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        for path in (run.work / "broken").rglob("*.wav"):
            read_wav(path)
    assert kills, "over before the first kill"
    last = subprocess.run(command, cwd=run.work, env=env, capture_output=True, check=False)
    assert last.returncode == run.exit_code
    broken = replace(run, out="broken")
    assert sorted(m["id"] for m in broken.manifest) == sorted(run.by_id)
    for row_id in run.by_id:
        assert np.array_equal(broken.samples(row_id), run.samples(row_id)), row_id


# ------------------------------------------------------------------------ rows and their numbers
def text_echoed(run: CaseRun, _: dict[str, Any]) -> None:
    assert [m["id"] for m, row in run.made_rows() if m["text"] != row["text"]] == []


def seed_echoed(run: CaseRun, _: dict[str, Any]) -> None:
    for made, row in run.made_rows():
        if "seed" in row and made["attempts"] == 1:
            assert made["seed"] == row["seed"]


def same_audio(run: CaseRun, check: dict[str, Any]) -> None:
    first, *rest = [run.samples(i).astype(int) for i in check["ids"]]
    tolerance = 0 if run.spec["model"] == "default" else 1
    for other in rest:
        assert len(other) == len(first)
        assert np.abs(other - first).max() <= tolerance


def different_audio(run: CaseRun, check: dict[str, Any]) -> None:
    assert len({run.samples(i).tobytes() for i in check["ids"]}) == len(check["ids"])


def file_named(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id, name in check["ids"].items():
        assert run.by_id[row_id]["audio_filepath"].endswith(f"/{name}")


def passed_duration_at_most(run: CaseRun, check: dict[str, Any]) -> None:
    for made, row in run.made_rows():
        if made["checks"]["verdict"] == "pass":
            assert made["duration"] <= row[check["field"]], made["id"]


def duration_at_most(run: CaseRun, check: dict[str, Any]) -> None:
    assert max(m["duration"] for m in run.manifest) <= check["seconds"] + 1e-6


def frames_at_most(run: CaseRun, check: dict[str, Any]) -> None:
    assert max(m["num_frames"] for m in run.manifest) <= check["frames"]


def short_rows_before(run: CaseRun, check: dict[str, Any]) -> None:
    order = [m["id"] for m in run.manifest]
    long = run.by_id[check["id"]]["num_frames"]
    later = run.manifest[order.index(check["id"]) + 1 :]
    assert [m["id"] for m in later if m["num_frames"] + check["margin_frames"] <= long] == []


# ---------------------------------------------------------------------------------------- stderr
def warned_once(run: CaseRun, check: dict[str, Any]) -> None:
    word = re.compile(rf"\b{re.escape(check['word'])}\b")
    assert sum(bool(word.search(line)) for line in run.stderr.splitlines()) == 1


def stderr_has(run: CaseRun, check: dict[str, Any]) -> None:
    assert [w for w in check["words"] if w not in run.stderr] == []


def stderr_line(run: CaseRun, check: dict[str, Any]) -> None:
    words = [re.compile(rf"(?<!\w){re.escape(w)}(?!\w)", re.I) for w in check["words"]]
    assert any(all(w.search(line) for w in words) for line in run.stderr.splitlines())


# ----------------------------------------------------------------------------------- spoken text
def spoken_matches(run: CaseRun, _: dict[str, Any]) -> None:
    for row_id, patterns in EXPECTED["cases"][run.file]["spoken"].items():
        if row_id in run.by_id:
            spoken = fold(run.by_id[row_id]["spoken_text"])
            assert any(_pattern(p).fullmatch(spoken) for p in patterns), (row_id, spoken)


def _pattern(source: str) -> re.Pattern[str]:
    signs = {"[": "(?:", "]": ")?", "(": "(?:", ")": ")", "|": "|"}
    parts = re.split(r"([\[\]()|])", source)
    return re.compile("".join(signs.get(p) or re.escape(fold(p)) for p in parts))


def spoken_has_no_digits(run: CaseRun, _: dict[str, Any]) -> None:
    for made in run.manifest:
        assert not any(unicodedata.category(c) == "Nd" for c in made["spoken_text"]), made["id"]


def spoken_is_text(run: CaseRun, _: dict[str, Any]) -> None:
    for made, row in run.made_rows():
        assert flat(made["spoken_text"]) == flat(row["text"])


def spoken_letters_are_text(run: CaseRun, _: dict[str, Any]) -> None:
    for made, row in run.made_rows():
        assert fold(made["spoken_text"]) == fold(row["text"]), made["id"]


def spoken_ends_with(run: CaseRun, check: dict[str, Any]) -> None:
    for made, row in run.made_rows():
        assert fold(made["spoken_text"]).endswith(fold(row[check["field"]])), made["id"]


def spoken_has_words(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id, words in check["words"].items():
        if row_id in run.by_id:
            text = unicodedata.normalize("NFKC", run.by_id[row_id]["spoken_text"]).casefold()
            spoken = iter(re.findall(r"\w+", text))
            assert all(word in spoken for word in words), (row_id, text)


def spoken_never_has(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id, strings in check["strings"].items():
        if row_id in run.by_id:
            spoken = run.by_id[row_id]["spoken_text"]
            assert [s for s in strings if s in spoken] == [], (row_id, spoken)


def no_control_tokens(run: CaseRun, _: dict[str, Any]) -> None:
    tokens = set()
    for model in filter(None, EXPECTED["models"].values()):
        config = json.loads((DATA / model / "tokenizer_config.json").read_text("utf8"))
        added = list(config.get("added_tokens_decoder", {}).values())
        if (path := DATA / model / "tokenizer.json").exists():
            added += json.loads(path.read_text("utf8"))["added_tokens"]
        assert added
        tokens |= {t["content"].casefold() for t in added}
    for made in run.manifest:
        for text in [made["spoken_text"], *(s["text"] for s in made["segments"])]:
            assert not re.search(r"<\|.*?\|>", text)
            assert [t for t in tokens if t in text.casefold()] == []


def no_invisible_characters(run: CaseRun, _: dict[str, Any]) -> None:
    for made in run.manifest:
        spoken = made["spoken_text"].replace("\n", "")
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") for c in spoken)


def spoken_is_nfc(run: CaseRun, _: dict[str, Any]) -> None:
    assert all(unicodedata.is_normalized("NFC", m["spoken_text"]) for m in run.manifest)


def manifest_is_clean_utf8(run: CaseRun, _: dict[str, Any]) -> None:
    for name in ("manifest.jsonl", "failures.jsonl"):
        path = run.folder() / name
        if path.exists():
            path.read_bytes().decode("utf8")  # raises


# -------------------------------------------------------------------------------------- segments
def squeeze(text: str) -> str:
    return "".join(text.split())


def segments_concat_equals_spoken_text(run: CaseRun, _: dict[str, Any]) -> None:
    for made in run.manifest:
        joined = "".join(s["text"] for s in made["segments"])
        assert squeeze(joined) == squeeze(made["spoken_text"]), made["id"]


def segments_have_finish_reason(run: CaseRun, _: dict[str, Any]) -> None:
    for made in run.manifest:
        assert {s["finish_reason"] for s in made["segments"]} <= {"stop", "length"}


def segments_at_least(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id, least in check["ids"].items():
        if row_id in run.by_id:
            assert len(run.by_id[row_id]["segments"]) >= least, row_id


def segments_at_most(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id, most in check["ids"].items():
        if row_id in run.by_id:
            assert len(run.by_id[row_id]["segments"]) <= most, row_id


def cuts_between_words(run: CaseRun, check: dict[str, Any]) -> None:
    for row_id in filter(run.by_id.__contains__, check["ids"]):
        made = run.by_id[row_id]
        text = made["spoken_text"]
        visible = [i for i, c in enumerate(text) if not c.isspace()]
        end = 0
        for segment in made["segments"][:-1]:
            end += len(squeeze(segment["text"]))
            before, after = visible[end - 1], visible[end]
            inside_word = after == before + 1 and (text[before] + text[after]).isalnum()
            assert not inside_word, (row_id, text[before - 9 : after + 10])


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        same_exit_in_check,
        rerun_changes_nothing,
        same_ids_again,
        same_rows_as,
        changed_setting_refused,
        survives_kills,
        text_echoed,
        seed_echoed,
        same_audio,
        different_audio,
        file_named,
        passed_duration_at_most,
        duration_at_most,
        frames_at_most,
        short_rows_before,
        warned_once,
        stderr_has,
        stderr_line,
        spoken_matches,
        spoken_has_no_digits,
        spoken_is_text,
        spoken_letters_are_text,
        spoken_ends_with,
        spoken_has_words,
        spoken_never_has,
        no_control_tokens,
        no_invisible_characters,
        spoken_is_nfc,
        manifest_is_clean_utf8,
        segments_concat_equals_spoken_text,
        segments_have_finish_reason,
        segments_at_least,
        segments_at_most,
        cuts_between_words,
    )
}
