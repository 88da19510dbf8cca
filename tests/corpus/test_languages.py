"""Language names and codes."""

import pytest

from ttsbatch.corpus.languages import language_code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("en", "en"), ("EN", "en"), ("eng", "en"), ("English", "en"), ("ENGLISH ", "en"),
        ("zh", "zh"), ("zho", "zh"), ("chi", "zh"), ("cmn", "zh"), ("Mandarin Chinese", "zh"),
        ("deu", "de"), ("ger", "de"), ("German", "de"), ("yue", "yue"), ("Cantonese", "yue"),
        ("th", "th"), ("tha", "th"), ("Thai", "th"), ("Greek", "el"), ("ell", "el"),
        ("Swahili", "sw"), ("swh", "sw"), ("arb", "ar"), ("pes", "fa"), ("Persian", "fa"),
        ("nb", "nb"), ("fil", "fil"), ("Ancient Greek", "grc"), ("Haitian", "ht"), ("iw", "he"),
        ("en-US", "en"), ("zh_CN", "zh"), ("zh-Hant-TW", "zh"), ("pt-br", "pt"), ("es-419", "es"),
    ],
)  # fmt: skip
def test_codes_and_names_in_any_case_give_our_code(name: str, code: str) -> None:
    assert language_code(name) == code


@pytest.mark.parametrize(
    "name",
    ["xx", "xx-QQ", "", " ", "q", "Klingonese", "und", "mul", "en-", "english-us-x", "zz_ZZ"],
)
def test_what_is_no_language_gives_none(name: str) -> None:
    assert language_code(name) is None
