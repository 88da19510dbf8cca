"""The front-end as a whole: clean-up, markup and numbers together."""

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttsbatch.text.clean import has_speech
from ttsbatch.text.normalize import normalized
from ttsbatch.text.numbers import NUMBER_LANGUAGES

LANGUAGES = (*sorted(NUMBER_LANGUAGES), "auto", "sv")
PIECES = (
    *"<>|[](){}*_#`~&;:=/\\-+.,%$€£¥°º@'\"!? \n",
    *("<|", "|>", "<b>", "</b>", "&lt;", "&amp;", "&gt;", "&#49;", "**", "](", "http://", "www."),
    *("[pause:1s]", "[laughing]", "(quietly)", "<br/>", "a", "B", "word", "x.com", "ё", "你", "年"),
    *("0", "2", "12", "007", "1,234.5", "1.234,5", "2026", "12:30", "3/4/2026", "1st", "½", "٣"),
    *("\u200b", "\u00ad", "\u0301", "\u202e", "Ａ", "１", "𝐲", "ﬁ", "“", "’", "•", "🙂", "|", "｜"),
)
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
TEXTS = st.one_of(HOSTILE, st.text(max_size=60))


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(LANGUAGES))
def test_twice_is_once_and_nothing_to_say_is_never_made_of_something(
    text: str, language: str
) -> None:
    once = normalized(text, language)
    assert normalized(once, language) == once
    assert has_speech(once) == has_speech(text)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(LANGUAGES))
def test_what_is_spoken_is_composed_visible_and_holds_no_control_token(
    text: str, language: str
) -> None:
    spoken = normalized(text, language)
    assert unicodedata.is_normalized("NFC", spoken)
    assert not {unicodedata.category(c) for c in spoken} & {"Cc", "Cf", "Cs", "Co"}
    assert "<|" not in spoken
    assert "|>" not in spoken
    assert spoken == " ".join(spoken.split())
    if language in NUMBER_LANGUAGES:
        assert not any(unicodedata.category(c) == "Nd" for c in spoken)


@given(st.lists(st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True), min_size=1), st.data())
def test_words_of_plain_prose_all_stay_in_order(words: list[str], data: st.DataObject) -> None:
    joins = [data.draw(st.sampled_from((" ", ", ", ". ", "! ", "\n", " - "))) for _ in words]
    text = "".join(w + j for w, j in zip(words, joins, strict=True))
    assert normalized(text, "en").split() == text.split()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("ＡＢＣ，ｏｋ？", "ABC,ok?"),
        ("𝒂𝒓𝒆 𝐲𝐨𝐮 𝕠𝕜", "are you ok"),
        ("ﬁnal eﬀort, ½ cup", "final effort, one half cup"),
        ("“It’s late,” she said", '"It\'s late," she said'),
        ("▪ first • second ➤ third", "first, second, third"),
        ("escape\x1b[0m codes", "escape codes"),
        ("A family 👩‍👩‍👧 came 🏳️‍🌈", "A family came"),
        ("un\u00adbe\u00adliev\u00adable", "unbelievable"),
    ],
)
def test_typography_is_made_plain(text: str, spoken: str) -> None:
    assert normalized(text, "en") == spoken


def test_chinese_and_japanese_keep_their_punctuation() -> None:
    assert normalized("你好，“世界”！ＯＫ？", "zh") == "你好，“世界”！OK？"
    assert normalized("「ﾊﾞﾅﾅ」、です。", "ja") == "「バナナ」、です。"


def test_a_language_without_number_words_keeps_its_digits() -> None:
    assert normalized("Det var **12** båtar.", "sv") == "Det var 12 båtar."
    assert normalized("See 12 boats.", "auto") == "See 12 boats."


@pytest.mark.parametrize(
    "text",
    [
        *("<|" * 5000, "[" * 10_000, "*a" * 5000, "<a b=" * 3000, "1,234," * 3000, "9" * 20_000),
        *("\n" * 30_000, "🙂" * 30_000, "\xa0" * 30_000, "• " + "\n, " * 30_000, "• ," * 9_000),
    ],
    ids=lambda text: ascii(text[:3]),
)
def test_a_long_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    started = time.process_time()
    normalized("word " + text, "en")
    assert time.process_time() - started < 5
