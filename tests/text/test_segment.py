"""Long texts become pieces."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsbatch.text.clean import has_speech, spoken
from ttsbatch.text.duration import expected_seconds
from ttsbatch.text.segment import (
    CLAUSE_PAUSE_S,
    PARAGRAPH_PAUSE_S,
    SEGMENT_S,
    SENTENCE_PAUSE_S,
    TINY_S,
    WORD_PAUSE_S,
    _sentences,
    pauses_s,
    split_text,
)

SENTENCE = "The green canoe slid under the low stone bridge at half past nine. "


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_a_text_within_the_budget_is_one_unchanged_piece() -> None:
    text = "One. Two! Three?"
    assert split_text(text, "en") == [text]


def test_a_long_text_is_cut_at_sentence_ends_without_crumbs() -> None:
    pieces = split_text(SENTENCE * 21, "en")
    assert all(p.endswith("nine.") and p.startswith("The green") for p in pieces)
    counts = [p.count("nine.") for p in pieces]
    assert sum(counts) == 21
    assert min(counts) > max(counts) / 2


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Dr. Ada E. Smith paid 3.14 dollars, e.g. at 10 a.m., in the U.S. office. "),
        ("de", "Am 3. Oktober kam Prof. Weber z. B. mit ca. 2,5 Litern Milch nach Hause. "),
    ],
)
def test_no_cut_is_made_inside_abbreviations_and_decimals(language: str, text: str) -> None:
    for piece in split_text(text * 12, language, budget_s=11):
        assert squeezed(piece).startswith(squeezed(text)[:4])
        assert piece.endswith(text.strip()[-6:])


@pytest.mark.parametrize(
    ("language", "text", "ends"),
    [
        ("zh", "他说街角的书店今天营业到晚上九点。请问去植物园应该坐哪一路公交车？", "。？"),
        ("ja", "これは本です。「そうですか。」と彼は静かに言いました！", "。！」"),
        ("hi", "यह किताब बहुत अच्छी है। वह कल आएगा। ", "।"),
        ("auto", "音乐会八点开始！Doors open at seven. ", "！."),
    ],
)
def test_other_scripts_are_cut_at_their_own_sentence_ends(
    language: str, text: str, ends: str
) -> None:
    pieces = split_text((text * 12).strip(), language)
    assert len(pieces) > 1
    assert all(p[-1] in ends for p in pieces)


def test_a_sentence_that_is_too_long_is_cut_at_clauses() -> None:
    text = ", ".join(["the crowd grew quiet when the curtain rose"] * 20) + "."
    assert all(p.endswith(("rose,", "rose.")) for p in split_text(text, "en"))


def test_a_text_without_marks_is_cut_between_words() -> None:
    words = ["word", "and", "another", "longer"] * 100
    pieces = split_text(" ".join(words), "en")
    assert len(pieces) > 1
    assert [w for p in pieces for w in p.split()] == words


def test_chinese_without_marks_is_cut_between_characters() -> None:
    text = "街角的书店今天营业到晚上九点请问去植物园应该坐哪一路公交车" * 20
    pieces = split_text(text, "zh")
    assert "".join(pieces) == text
    assert all(SEGMENT_S / 2 < expected_seconds(p, "zh") <= SEGMENT_S for p in pieces)


def test_one_endless_word_is_cut_inside() -> None:
    assert "".join(split_text("a" * 900, "de")) == "a" * 900
    assert len(split_text("a" * 900, "de")) == 3


def test_a_combining_mark_stays_with_its_letter() -> None:
    pieces = split_text("x\u0323" * 700, "vi")
    assert len(pieces) > 1
    assert all(p[0] == "x" for p in pieces)


def test_spaced_digits_are_cut_at_the_spaces() -> None:
    pieces = split_text("123 456 789 " * 20, "en")
    assert {n for p in pieces for n in p.split()} == {"123", "456", "789"}


def test_a_last_word_is_not_left_alone() -> None:
    text = ("word " * 158).strip() + ". Yes."
    assert expected_seconds(text, "en") > 2 * SEGMENT_S
    assert split_text(text, "en")[-1].endswith("word. Yes.")


@pytest.mark.parametrize("mark", [". ", "... ", "* ", "—", "。"])
def test_runs_of_marks_make_no_piece_of_their_own(mark: str) -> None:
    text = f"{mark * 300}begin {SENTENCE * 9}{mark * 300}{SENTENCE * 9}{mark * 300}".strip()
    pieces = split_text(text, "en")
    assert len(pieces) > 1
    assert all(has_speech(p) for p in pieces)
    assert squeezed("".join(pieces)) == squeezed(text)


_ALPHABET = st.one_of(
    st.sampled_from("ab .,!?;:\"'()—-…0123456789éß。，！？“”「」的了あアー한ा\n"),
    st.characters(exclude_categories=["Cs"]),
)
_TEXTS = st.lists(
    st.one_of(
        st.text(_ALPHABET, max_size=40),
        st.sampled_from(
            ["Dr. ", "3.14 ", "e.g. ", "He left. ", "word ", "你好。", "x" * 60, "1) "]
        ),
    ),
    max_size=40,
).map("".join)


@given(_TEXTS, st.sampled_from(["en", "zh", "ja", "de", "auto", "haw"]), st.floats(2.0, 20.0))
@settings(max_examples=150, deadline=None)
def test_pieces_are_the_text_and_each_can_be_said(text: str, language: str, budget: float) -> None:
    text = spoken(text)
    pieces = split_text(text, language, budget)
    assert squeezed("".join(pieces)) == squeezed(text)
    assert len(pauses_s(text, pieces)) == len(pieces) - 1
    if len(pieces) > 1:
        assert all(has_speech(p) and p == p.strip() for p in pieces)


@pytest.mark.parametrize(
    "sentence",
    ["Dr. Lee met Ms. May at 3.14 p.m. today! ", "他来了。你好吗？", "No end at all, only words "],
)
def test_sentence_ends_of_a_very_long_text_are_those_of_its_parts(sentence: str) -> None:
    part = _sentences(sentence * 20, "en")
    assert _sentences(sentence * 400, "en") == (part * 20 if len(part) > 1 else [sentence * 400])


def test_a_text_of_many_sentences_takes_time_by_its_length() -> None:
    text = "你好，世界。" * 16_000
    started = time.process_time()
    pieces = split_text(text, "zh")
    assert time.process_time() - started < 5
    assert "".join(pieces) == text


_SCRIPTS = st.sampled_from(
    [
        *("abc", "ÀÉß", "жёк", "αβγ", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "你好世", "ひらカ"),
        *("안녕", "አማር", "တမိ", "ខ្មែ", "ＡＢ１", "𝐚𝐛", "\U00020000\U00020001"),
        *("e\u0301o\u0308", "١٢", "12", "½Ⅳ"),
    ]
)
_ANY_WORD = _SCRIPTS.flatmap(lambda letters: st.text(letters, min_size=1, max_size=40))
_ANY_MARK = st.sampled_from(["", " ", " ", ". ", "。", "! ", ", ", "، ", "-", "…", "\n"])
_ANY_SCRIPT = st.lists(st.tuples(_ANY_WORD, _ANY_MARK), min_size=1, max_size=60).map(
    lambda pairs: "".join(word + mark for word, mark in pairs)
)


@given(_ANY_SCRIPT, st.sampled_from(["en", "zh", "ja", "ar", "hi", "th", "auto"]), st.floats(4, 20))
@settings(max_examples=150, deadline=None)
def test_pieces_of_any_script_are_the_text_and_keep_to_the_budget(
    text: str, language: str, budget: float
) -> None:
    text = spoken(text)
    pieces = split_text(text, language, budget)
    assert squeezed("".join(pieces)) == squeezed(text)
    if len(pieces) > 1:
        assert all(has_speech(p) for p in pieces)
    limit = budget + 2 * TINY_S + 1.0  # a tiny neighbour on either side; marks that are not said
    assert all(expected_seconds(p, language) <= limit for p in pieces)


_WORDS = st.lists(
    st.from_regex(r"[a-z]{1,12}[.,!?;]?", fullmatch=True) | st.sampled_from(["3.14", "2,000"]),
    min_size=1,
    max_size=300,
)


@given(_WORDS, st.sampled_from(["en", "de", "fr"]), st.floats(5.0, 20.0))
@settings(max_examples=60, deadline=None)
def test_pieces_keep_to_the_budget_and_cut_no_word(
    words: list[str], language: str, budget: float
) -> None:
    pieces = split_text(" ".join(words), language, budget)
    assert [w for p in pieces for w in p.split()] == words
    limit = budget + 2 * TINY_S  # a tiny neighbour on either side
    assert all(expected_seconds(p, language) <= limit for p in pieces)
    if len(pieces) > 1:
        assert all(expected_seconds(p, language) >= TINY_S for p in pieces)


def test_a_pause_goes_by_the_mark_before_it() -> None:
    text = "One.” Two, three four\n\nfive. six"
    pieces = ["One.”", "Two,", "three", "four", "five. six"]
    assert pauses_s(text, pieces) == [
        SENTENCE_PAUSE_S,
        CLAUSE_PAUSE_S,
        WORD_PAUSE_S,
        PARAGRAPH_PAUSE_S,
    ]


def test_short_texts_do_not_load_the_sentence_cutter() -> None:
    code = (
        "import sys; from ttsbatch.text.segment import split_text; split_text('Hi. You.', 'en');"
        "assert 'sentencex' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
