"""Prompts of VoxCPM2: what of a row reaches the model as text, and what as an instruction."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.voxcpm2 import FIXTURE, config
from ttsbatch.models.voxcpm2.prompt import Clip, PromptBuilder, Spoken
from ttsbatch.models.voxcpm2.tokenizer import CharTokenizer

CLIP = Clip("a", np.zeros(16_000, np.float32), "left")


def ids(spoken: Spoken) -> list[int]:
    builder = PromptBuilder(config(), CharTokenizer(FIXTURE, config().vocab_size))
    return builder.build(spoken, 2.0, 10).token_ids.tolist()


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("(hello world.) today", "hello world. today"),
        (" (hello) (world)", "hello (world)"),
        ("((hello) world) today", "hello world today"),
        ("(hello", "hello"),
        ("（你好）世界", "你好世界"),
        ("【你好】世界", "【你好】世界"),
        ("hello (world) today", "hello (world) today"),
        ("()hello", "hello"),
        ("( hello ) today", "hello today"),
        ("(hello (world)) today)", "hello (world) today)"),
        ("()(hello) (world)", "hello (world)"),
        ("(" * 50_000 + "hello", "hello"),
    ],
)
def test_text_in_brackets_at_the_start_is_no_instruction(text: str, heard: str) -> None:
    assert ids(Spoken(text)) == ids(Spoken(heard))
    assert ids(Spoken(text, instruct="soft")) == ids(Spoken(heard, instruct="soft"))


def test_text_is_not_what_an_instruction_is() -> None:
    assert ids(Spoken("hello", instruct="soft")) != ids(Spoken("(soft)hello"))


def test_an_instruction_stands_in_brackets_before_the_text() -> None:
    plain, told = ids(Spoken("hello")), ids(Spoken("hello", instruct=" very \n soft"))
    assert told[-len(plain) + 1 :] == plain[1:]  # the first may be joined to the bracket
    assert ids(Spoken("hello", instruct="very soft")) == told


def test_an_instruction_ends_where_its_bracket_does() -> None:
    told = ids(Spoken("hello", instruct="soft) today"))
    assert told == ids(Spoken("hello", instruct="soft today"))


def test_a_text_that_goes_on_from_a_clip_keeps_its_brackets() -> None:
    def continued(text: str) -> list[int]:
        return ids(Spoken(text, continued=CLIP, continued_text="today "))

    assert continued("(hello) world") != continued("hello world")
