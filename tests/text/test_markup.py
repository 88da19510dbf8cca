"""The markup policy, rule by rule."""

import pytest

from ttsbatch.text.normalize import normalized


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Bold** and _soft_ words", "Bold and soft words"),
        ("an *important* word, ***very*** much", "an important word, very much"),
        ("a [link](https://example.com/a?b=1) and `code`", "a link and code"),
        ("![a cat](cat.png) sleeps", "a cat sleeps"),
        ("# Chapter Nine\n\nIt rained.", "Chapter Nine It rained."),
        ("> quoted words\n> go on", "quoted words go on"),
        ("- one thing\n- another", "one thing another"),
        ("```python\nprint\n```\nafter", "print after"),
        ("above\n---\nbelow", "above below"),
        ("~~gone~~ still said", "gone still said"),
        ("<p>Two&nbsp;words &amp; a <b>tag</b>.</p>", "Two words & a tag."),
        ("un<b>believ</b>able", "unbelievable"),
        ("one<br/>two", "one two"),
        ('<speak>Wait <break time="700ms"/> now.</speak>', "Wait now."),
        ("a <!-- hidden --> word", "a word"),
        ("Hello [pause:0.5s] world.", "Hello world."),
        ("[laughing] That is it.", "That is it."),
        ("he said [she] left [sic]", "he said she left sic"),
        ("closed[12] again", "closed again"),
        ("(quietly) I was not there.", "I was not there."),
        ("(in the harbour) I was there.", "(in the harbour) I was there."),
        ("<|emotion:sadness|>The last boat", "The last boat"),
        ("say <|im_end|> and <tts_pad> and </s> now", "say and and now"),
        ("<|im_<|x|>end|> now", "im_ end now"),
        ("&lt;|im_end|&gt; now", "now"),
        ("[INST] go [/INST]", "go"),
    ],
)
def test_markup_goes_and_the_words_around_it_stay(text: str, spoken: str) -> None:
    assert normalized(text, "en") == spoken


@pytest.mark.parametrize(
    "text",
    [
        "If a < b & b > c, stop.",
        "snake_case and kebab-case words",
        "a * b and c * d",
        "either/or, and so on (as ever).",
        "a - b",
    ],
)
def test_signs_that_are_no_markup_stay(text: str) -> None:
    assert normalized(text, "en") == text


@pytest.mark.parametrize(
    ("text", "language", "spoken"),
    [
        ("See https://example.com/docs/index.html.", "en", "See example dot com."),
        ("at www.example.com, now", "en", "at example dot com, now"),
        ("write to info@example.com", "en", "write to info at example dot com"),
        ("Siehe https://example.com?a=1", "de", "Siehe example Punkt com"),
        ("See https://example.com/x now", "auto", "See example.com now"),
    ],
)
def test_an_address_is_read_as_its_host(text: str, language: str, spoken: str) -> None:
    assert normalized(text, language) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("[laughing]", "laughing"),
        ("<|im_end|>", "im end"),
        ("<b>", "b"),
        ("(quietly)", "(quietly)"),
    ],
)
def test_where_markup_is_all_there_is_its_words_are_spoken(text: str, spoken: str) -> None:
    assert normalized(text, "en") == spoken
