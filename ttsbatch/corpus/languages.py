"""Languages as corpora name them -> the one code that we use.

The tables are those of `python-iso639` (ISO 639-3 as SIL publishes it). Reading them takes half a
second, so the codes that most corpora use are here, and the tables wait for another one.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

_FREQUENT = {
    "en": ("eng", "english"),
    "zh": ("zho", "chi", "cmn", "chinese", "mandarin", "mandarin chinese"),
    "de": ("deu", "ger", "german"),
    "fr": ("fra", "fre", "french"),
    "es": ("spa", "spanish"),
    "it": ("ita", "italian"),
    "pt": ("por", "portuguese"),
    "ru": ("rus", "russian"),
    "ja": ("jpn", "japanese"),
    "ko": ("kor", "korean"),
    "yue": ("cantonese", "yue chinese"),
}
_QUICK = {name: code for code, names in _FREQUENT.items() for name in (code, *names)}

# The individual language that is meant by the two-letter code of its macrolanguage.
# Source: Unicode CLDR, supplementalMetadata, languageAlias (type macrolanguage).
_PRINCIPAL = {
    "cmn": "zh", "arb": "ar", "als": "sq", "azj": "az", "ekk": "et", "gaz": "om", "gug": "gn",
    "khk": "mn", "kmr": "ku", "lvs": "lv", "npi": "ne", "ory": "or", "pbu": "ps", "pes": "fa",
    "plt": "mg", "swh": "sw", "uzn": "uz", "ydd": "yi", "zsm": "ms",
}  # fmt: skip
_EVERYDAY = {
    "farsi": "fa",
    "cantonese": "yue",
    "mandarin": "zh",
    "iw": "he",
    "in": "id",
    "ji": "yi",
}
_REGION = re.compile(r"([a-z]{2,3})[-_](?:[a-z]{4}[-_])?(?:[a-z]{2}|[0-9]{3})")
_SCRIPT = re.compile(r"([a-z]{2,3})[-_](?:hans|hant|latn|cyrl|arab|jpan|kore|deva)")


@lru_cache(maxsize=4096)
def language_code(name: str) -> str | None:
    """The code of a language, or None where there is no such language.

    Args:
        name: ISO 639-1, 639-2 or 639-3 code, or English name, in any case. A code with a region
            or script behind it ("en-US", "zh_Hant_TW") counts as its language.

    Returns:
        ISO 639-1 code, else ISO 639-3.
    """
    key = " ".join(name.casefold().split())
    if found := _QUICK.get(key):
        return found
    if len(key) < 2:
        return None
    table = _table()
    if found := table.get(key):
        return found
    if match := _REGION.fullmatch(key) or _SCRIPT.fullmatch(key):
        return table.get(match[1])
    return None


@cache
def _table() -> dict[str, str]:
    """Every known code and name, case-folded -> our code."""
    import iso639

    names: dict[str, str] = {}
    loose: dict[str, str] = {}
    languages = sorted(iso639.ALL_LANGUAGES, key=lambda x: (x.part1 is None, x.part3))
    languages = [x for x in languages if x.status == "A" and x.scope != "S"]
    codes: dict[str, str] = {}
    for x in languages:
        ours = x.part1 or _PRINCIPAL.get(x.part3, x.part3)
        for code in (x.part1, x.part2b, x.part2t, x.part3):
            if code:
                codes.setdefault(code, ours)
        others = x.other_names or []
        for label in (x.name, *(n.print for n in others), *(n.inverted for n in others)):
            names.setdefault(label.casefold(), ours)
            # "Modern Greek (1453-)", "Greek, Modern (1453-)" -> "modern greek", "greek"
            plain = label.casefold().partition(" (")[0]
            loose.setdefault(plain, ours)
            if x.part1:
                loose.setdefault(plain.partition(",")[0], ours)
    return loose | names | _EVERYDAY | codes | _QUICK
