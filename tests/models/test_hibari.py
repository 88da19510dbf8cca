"""The embedded model: real speech, so that everything around a model is tested on it."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hibari.g2p import LINK_RE
from hibari.g2p.normalize import normalize
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsbatch.corpus.rows import RowChecker
from ttsbatch.errors import PlanError
from ttsbatch.models import check_engine_plan, open_card
from ttsbatch.models.hibari.model import HibariSpeaker, load, to_int16
from ttsbatch.models.hibari.speakable import (
    MAX_PHONEMES,
    MAX_WORD_LETTERS,
    CannotRead,
    cut_phonemes,
    speakable,
    unreadable_letters,
)
from ttsbatch.plan import EnginePlan, RowDefaults
from ttsbatch.types import Failure, Record, Segment, Utterance, Waveform

ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZé")
TEXTS = ("Rain again.", "The kettle sang.", "Seven boats left the harbour at dawn.", "Yes?")


def segment(text: str, seed: int = 1, row_id: str = "a", attempt: int = 0) -> Segment:
    row = Utterance(row_id, text, text, "rows.jsonl", 1, "heart", "en", seed)
    return Segment(row, 0, text, attempt)


@pytest.fixture(scope="module")
def speaker() -> HibariSpeaker:
    return load(open_card(None), EnginePlan(slots=2))


def wave_of(speaker: HibariSpeaker, *args: object, **kwargs: object) -> Waveform:
    (out,) = speaker.speak([segment(*args, **kwargs)])  # type: ignore[arg-type]
    assert isinstance(out, Waveform), out
    return out


def failure_of(speaker: HibariSpeaker, text: str) -> Failure:
    (out,) = speaker.speak([segment(text)])
    assert isinstance(out, tuple), out
    return out[1]


def test_a_sentence_becomes_speech_of_a_plausible_length(speaker: HibariSpeaker) -> None:
    wave = wave_of(speaker, "Seven boats left the harbour at dawn.")
    assert 1.2 < wave.duration_s < 5
    assert wave.sample_rate_hz == speaker.card.sample_rate_hz == 24_000
    assert np.abs(wave.samples.astype(int)).max() > 1_000
    assert (wave.finish_reason, wave.num_frames, wave.num_nonfinite) == ("stop", 0, 0)


def test_samples_do_not_depend_on_order_or_worker_count(speaker: HibariSpeaker) -> None:
    def digests(order: list[int], slots: int) -> dict[str, str]:
        other = load(speaker.card, EnginePlan(slots=slots))
        rows = [segment(TEXTS[i], seed=i, row_id=str(i)) for i in order]
        waves = [w for w in other.speak(rows) if isinstance(w, Waveform)]
        return {
            w.segment.utterance.id: hashlib.sha256(w.samples.tobytes()).hexdigest() for w in waves
        }

    first = digests([0, 1, 2, 3], 1)
    assert len(first) == 4
    assert digests([3, 1, 0, 2], 3) == first


def test_seed_and_attempt_decide_the_samples(speaker: HibariSpeaker) -> None:
    takes = [
        wave_of(speaker, TEXTS[0], seed=s, attempt=a).samples
        for s, a in [(7, 0), (7, 0), (8, 0), (7, 1)]
    ]
    assert np.array_equal(takes[0], takes[1])
    assert not np.array_equal(takes[0], takes[2])
    assert not np.array_equal(takes[0], takes[3])


@pytest.mark.parametrize("text", ["你好。", "Good morning, 東京!"])
def test_text_it_cannot_read_fails_and_names_the_letters(speaker: HibariSpeaker, text: str) -> None:
    failure = failure_of(speaker, text)
    assert (failure.reason, failure.utterance_id) == ("unsupported_language", "a")
    assert "你好" in failure.message or "東京" in failure.message


def test_the_card_knows_the_letters_of_the_loaded_model(speaker: HibariSpeaker) -> None:
    assert speaker.card.cannot_read == CannotRead(frozenset(speaker._tts.g2p.oov.cin))


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("你好。", "你好"),
        ("안녕하세요", "안녕하세요"),
        ("Good morning, 東京!", "東京"),
        ("Nguyễn, café, Ω, ﬁve, naïve", ""),
        ("\uff21\uff22 <b>日</b>", "日"),  # letters of full width are plain ones
        ("Good morning", ""),
        ("Room 〇 and ㊀", "〇㊀"),  # numerals that are no digits
        ("½, ②, Ⅳ, ٣ and m²", ""),
    ],
)
def test_a_row_is_rejected_for_what_the_model_would_fail_it_for(
    speaker: HibariSpeaker, text: str, lost: str
) -> None:
    row = Record("rows.jsonl", 1, {"id": "a", "text": text}, ".")
    for defaults in (RowDefaults(), RowDefaults(normalize=False)):
        found = RowChecker(defaults, speaker.card).resolve(row)
        if lost:
            failure = failure_of(speaker, text)
            assert isinstance(found, Failure)
            assert (found.stage, found.reason) == ("validate", failure.reason)
            assert found.message == failure.message
            assert repr(lost) in found.message
        else:
            assert isinstance(found, Utterance)
            wave_of(speaker, found.spoken_text)


def test_what_normalization_takes_out_is_no_reason_to_reject(speaker: HibariSpeaker) -> None:
    row = Record("rows.jsonl", 1, {"id": "a", "text": 'A <span title="東京">word</span>.'}, ".")
    found = RowChecker(RowDefaults(), speaker.card).resolve(row)
    assert isinstance(found, Utterance)
    wave_of(speaker, found.spoken_text)
    assert isinstance(RowChecker(RowDefaults(normalize=False), speaker.card).resolve(row), Failure)


def test_a_card_survives_a_pickle() -> None:
    card = open_card(None)
    assert pickle.loads(pickle.dumps(card)) == card


def test_each_piece_of_a_row_has_draws_of_its_own(speaker: HibariSpeaker) -> None:
    first = wave_of(speaker, "The same words.")
    second = next(speaker.speak([replace(segment("The same words."), index=1)]))
    assert isinstance(second, Waveform)
    assert not np.array_equal(first.samples, second.samples)


def test_text_without_any_sound_fails_in_place_of_an_empty_wave(speaker: HibariSpeaker) -> None:
    assert failure_of(speaker, "   ").reason == "engine_error"


def test_an_exception_in_one_row_leaves_the_others(
    speaker: HibariSpeaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = speaker._tts.phonemize

    def phonemize(text: str) -> list[str]:
        if "boom" in text:
            raise RuntimeError("no such sound")
        return real(text)

    monkeypatch.setattr(speaker._tts, "phonemize", phonemize)
    out = list(speaker.speak([segment("boom"), segment("Fine.", row_id="b")]))
    failures = [o[1] for o in out if isinstance(o, tuple)]
    assert [f.message for f in failures] == ["RuntimeError: no such sound"]
    assert [o.segment.utterance.id for o in out if isinstance(o, Waveform)] == ["b"]


def test_segments_are_pulled_only_as_workers_fall_free(speaker: HibariSpeaker) -> None:
    pulled = itertools.count()
    seen = []

    def source() -> object:
        for _ in range(40):
            seen.append(next(pulled))
            yield segment("Short.")

    speaking = speaker.speak(source())  # type: ignore[arg-type]
    next(speaking)
    assert len(seen) <= 8
    speaking.close()  # type: ignore[attr-defined]


def test_markup_of_the_phonemizer_is_read_as_plain_words(speaker: HibariSpeaker) -> None:
    trick = wave_of(speaker, "[word](/zzz/)")
    assert trick.duration_s > 1.5 * wave_of(speaker, "word").duration_s


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="ab [](/)ˈ.~=+<>#\n\t\u200b\u00a0", max_size=40))
def test_no_text_reaches_the_markup(text: str) -> None:
    spaced = speakable(text, ALPHABET)
    assert LINK_RE.search(spaced) is None
    assert LINK_RE.search(normalize(spaced)) is None


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_making_text_speakable_keeps_every_letter_and_digit(text: str) -> None:
    def kept(s: str) -> str:
        return "".join(c for c in s if c.isalnum())

    wide = frozenset(text) | ALPHABET
    import unicodedata

    text = unicodedata.normalize("NFC", text)
    assert kept(speakable(text, wide | frozenset(text))) == kept(text)


def test_an_unknown_accent_falls_back_to_its_letter() -> None:
    assert speakable("Nguyễn", ALPHABET) == "Nguyen"
    assert speakable("café", ALPHABET) == "café"
    assert unreadable_letters("Nguyễn 京", ALPHABET) == "京"


def test_long_words_and_runs_are_spaced() -> None:
    words = speakable("a" * 600, ALPHABET).split()
    assert max(map(len, words)) <= MAX_WORD_LETTERS
    assert "".join(words) == "a" * 600
    assert speakable("wow!!!!!!!!", ALPHABET) == "wow!!!"
    assert max(map(len, speakable("a?!" * 500, ALPHABET).split())) <= 100


def test_phonemes_are_cut_between_words() -> None:
    pieces = cut_phonemes("abc " * 400)
    assert " ".join(pieces) == ("abc " * 400).strip()
    assert max(map(len, pieces)) <= MAX_PHONEMES
    assert [len(p) for p in cut_phonemes("x" * 900)] == [400, 400, 100]


def test_a_long_text_without_punctuation_is_spoken_whole(speaker: HibariSpeaker) -> None:
    one = wave_of(speaker, "so we walked along the river and talked ").duration_s
    many = wave_of(speaker, "so we walked along the river and talked " * 50).duration_s
    assert 0.7 * 50 * one < many < 1.2 * 50 * one


def test_samples_that_are_not_finite_are_counted_and_silenced() -> None:
    samples, num_nonfinite = to_int16(np.array([0.5, np.nan, np.inf, 2.0], np.float32))
    assert samples.tolist() == [16384, 0, 0, 32767]
    assert num_nonfinite == 2


@pytest.mark.parametrize(
    ("plan", "word"),
    [(EnginePlan(device="cuda"), "--device"), (EnginePlan(dtype="bfloat16"), "--dtype")],
)
def test_an_engine_option_without_a_use_is_refused(plan: EnginePlan, word: str) -> None:
    with pytest.raises(PlanError, match=word):
        check_engine_plan(open_card(None), plan)
