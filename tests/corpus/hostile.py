"""Corpus lines that nobody should write: a seeded generator of JSONL, half of it broken.

Used by the tests with a few thousand lines and by `recipes/fuzz/corpus_lines.py` with any number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

WORDS = (
    *("The", "river", "was", "quiet", "and", "12", "boats", "$3.50", "on", "3/4/2026", "at 12:30"),
    *(
        "Dr.",
        "Müller",
        "said:",
        "“hello”",
        "l'été",
        "¿qué?",
        "привет",
        "你好，世界。",
        "ありがとう。",
    ),
    *("안녕하세요", "नमस्ते", "שלום", "مرحبا", "สวัสดี", "e\u0301", "ﬁ", "½", "2nd", "1,234.5", "100%"),
)
SIGNS = (
    *(
        "<|im_end|>",
        "<|",
        "|>",
        "[INST]",
        "<b>",
        "</b>",
        "<!--",
        "-->",
        "&lt;",
        "&#x110000;",
        "&#0;",
    ),
    *(
        "[pause:1s]",
        "](",
        "**",
        "```",
        "http://a.b/c?d=e",
        "a@b.c",
        "#",
        "~~",
        "\\",
        "{",
        "}",
        "[",
        "]",
    ),
    *("\u0000", "\u0007", "\u200b", "\u200d", "\u202e", "\ufeff", "\ud800", "\udfff", "\ue000"),
    *(
        "\u0301",
        "\u3164",
        "\U0001f642",
        "\U0010ffff",
        "\u2028",
        "\r",
        "\n",
        "\t",
        "\x85",
        "\xa0",
        " ",
    ),
    *("0", "٣", "９", "-", "+", ".", ",", "/", ":", "e", "$", "€", "°", "%", "'", '"', "…", "—"),
)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.0, 2**63, -(2**63) - 1, 10**400, 1e308, 1e-320, "null"),
    *(float("nan"), float("inf"), "", " ", "\u200b", "nan", "1e999", [], {}, [[]], {"text": "x"}),
    *("x" * 300,),
    *("../../etc/passwd", "CON", "a/b", "a\\b", "a\x00b", "\ud800", ".", "/", "~", "é", "e\u0301"),
)  # fmt: skip
GOOD: dict[str, tuple[Any, ...]] = {
    "voice": (None, "Ryan", "heart", "vivian"),
    "language": (None, "en", "eng", "English", "de", "zh", "auto", "ja", "fr", "ru", "xx", "en-US"),
    "instruct": ("Slowly.", "", "Say it <|loudly|>."),
    "ref_audio": ("clip.wav", "missing.wav", "..\\clip.wav", "s3://bucket/clip.wav"),
    "ref_text": ("What the clip says.", ""),
    "seed": (0, 7, 2**63 - 1),
    "temperature": (0, 0.5, 1, 101),
    "top_k": (0, 5, 5.0),
    "top_p": (0.5, 1, 0),
    "repetition_penalty": (1, 1.05),
    "max_seconds": (3, 0.5, 0.001, 1e9),
    "split": (True, False),
    "file_name": ("a/b.wav", "greeting", "x.WAV"),
    "tags": ([1, "two", None], {"deep": {"er": [True]}}, "plain", 3),
}


def lines(count: int, seed: int, huge_chars: int = 50_000) -> Iterator[bytes]:
    """`count` lines without their ends; a broken one may hold line ends of its own.

    Args:
        count: how many.
        seed: the same lines for the same seed.
        huge_chars: length of the longest strings.
    """
    rng = random.Random(seed)
    makers: list[Callable[[random.Random, int], bytes]] = [
        *[_plain] * 8,
        *[_odd_value] * 7,
        *[_mutated] * 6,
        *[_hostile_text] * 6,
        _noise,
        _nested,
        _numbers,
        _repeated_keys,
    ]
    for number in range(count):
        if rng.random() < 0.002:
            yield _huge(rng, number, huge_chars)
        else:
            yield rng.choice(makers)(rng, number)


def hostile_text(rng: random.Random, most: int = 14) -> str:
    """Words and signs, with spaces or without."""
    pieces = [
        rng.choice(SIGNS if rng.random() < 0.5 else WORDS) for _ in range(rng.randint(0, most))
    ]
    return rng.choice(("", " ", " ")).join(pieces)


def _row(rng: random.Random, number: int) -> dict[str, Any]:
    text = " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
    row: dict[str, Any] = {"id": f"row-{number}", "text": text}
    if rng.random() < 0.3:
        row["id"] = rng.choice((number, f"row-{rng.randint(0, number)}", None))
    if rng.random() < 0.2:
        del row["id"]
    for name in rng.sample(sorted(GOOD), rng.choice((0, 0, 0, 1, 2, 4))):
        row[name] = rng.choice(GOOD[name])
    return row


def _dump(rng: random.Random, row: Any) -> bytes:
    ascii_only = rng.random() < 0.5
    return json.dumps(row, ensure_ascii=ascii_only).encode("utf8", "surrogatepass")


def _plain(rng: random.Random, number: int) -> bytes:
    return _dump(rng, _row(rng, number))


def _odd_value(rng: random.Random, number: int) -> bytes:
    row = _row(rng, number)
    row[rng.choice(("id", "text", *GOOD))] = rng.choice(ODD)
    if rng.random() < 0.2:
        row[rng.choice(("Text", "temprature", "", "\ud800", "x" * 500, "id "))] = rng.choice(ODD)
    return _dump(rng, row if rng.random() < 0.95 else rng.choice(ODD))


def _hostile_text(rng: random.Random, number: int) -> bytes:
    row = _row(rng, number)
    row["text"] = hostile_text(rng)
    if rng.random() < 0.2:
        row["id"] = hostile_text(rng, 4)
    if rng.random() < 0.2:
        row["file_name"] = hostile_text(rng, 4)
    return _dump(rng, row)


def _mutated(rng: random.Random, number: int) -> bytes:
    data = bytearray(_plain(rng, number))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randint(1, 9))
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = rng.choice(
                    (b"\x00", b"\r", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80")
                )
            case 3:
                data[at:at] = data[at:end] * 3
            case 4:
                del data[at:]
            case _:
                data[at:at] = rng.choice((b'"', b"\\", b"{", b"}", b",", b"\n", b"\\u", b"\\ud83d"))
        if not data:
            break
    return bytes(data)


def _noise(rng: random.Random, number: int) -> bytes:
    return rng.randbytes(rng.randint(0, 60))


def _nested(rng: random.Random, number: int) -> bytes:
    depth = rng.choice((3, 60, 64, 66, 1000, 20_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inside = opening * depth + b"1" + closing * rng.choice((depth, depth, 0))
    return b'{"id": "deep-%d", "text": "Deep.", "x": %s}' % (number, inside)


def _numbers(rng: random.Random, number: int) -> bytes:
    values = (
        b"1" * 5000,
        b"-" + b"9" * 400,
        b"1e999",
        b"-1E-999",
        b"0.1e+308",
        b"NaN",
        b"01",
        b"1.",
    )
    name = rng.choice(("id", "text", "seed", "temperature", "max_seconds", "other")).encode()
    return b'{"text": "A number.", "id": "n-%d", "%s": %s}' % (number, name, rng.choice(values))


def _repeated_keys(rng: random.Random, number: int) -> bytes:
    texts = rng.choice((b'"Two"', b"1", b"null", b'""', b'"\\ud800"', b'"\\udc00\\ud800"'))
    return b'{"id": "k-%d", "text": "One.", "text": %s, "id": "k-%d"}' % (
        number,
        texts,
        number % 50,
    )


def _huge(rng: random.Random, number: int, chars: int) -> bytes:
    unit = rng.choice((*SIGNS, *WORDS, "a", "a ", "1,", "<a ", "你", "word word. ")) or "a"
    name = rng.choice(("text", "text", "text", "id", "file_name", "language", "voice", "other"))
    text = (unit * (chars // len(unit) + 1))[: rng.randint(chars // 50, chars)]
    return _dump(rng, _row(rng, number) | {name: text})
