"""Numbers in words, in ten languages: money, dates, times, per cent, ordinals, ranges and the rest.

num2words spells whole numbers and ordinals (`chinese.py` the Chinese ones); what a run of digits
*is* is decided here, by its look alone. A number before a noun doesn't take its gender or case.
After it no decimal digit of any script is left.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

from ttsbatch.text.chinese import DIGITS, chinese_cardinal
from ttsbatch.text.number_words import WORDS, NumberWords

NUMBER_LANGUAGES = frozenset(WORDS)
"""ISO 639 codes of the languages whose numbers are read."""

_MOST_DIGITS = 15  # longer runs are no amount; they are read digit by digit
_DIGIT = re.compile(r"\d")
_FRACTIONS = {"½": (1, 2), "¼": (1, 4), "¾": (3, 4), "⅓": (1, 3), "⅔": (2, 3)}
_FRACTION_WORDS = {(1, 2): "one half", (1, 4): "one quarter", (3, 4): "three quarters"} | {
    (1, 3): "one third",
    (2, 3): "two thirds",
}
_KOREAN_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_KOREAN_ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
_KOREAN_COUNTERS = (
    "개|명|마리|권|살|잔|병|대|장|벌|켤레|송이|그루|시간|시(?!\\w)|번(?!호)|사람|가지|달"
)
_CHINESE_COUNTERS = "[个個只隻本次天年块条张位名人件种台辆岁周]"


def read_numbers(text: str, language: str) -> str:
    """`text` with its numbers in words.

    Args:
        text: cleaned, one line.
        language: one of NUMBER_LANGUAGES.
    """
    if not _DIGIT.search(text):
        if not text.isascii():
            text = _signed_fractions(text, language)
        return text
    if not text.isascii():
        text = _signed_fractions(text, language)
        text = _DIGIT.sub(lambda m: str(unicodedata.decimal(m[0])), text)
    return _reader(language).read(text)


def _signed_fractions(text: str, language: str) -> str:
    if language != "en":
        return text
    for sign, parts in _FRACTIONS.items():
        if sign in text:
            text = re.sub(rf"(?<=\d)\s?{sign}", f" and {_FRACTION_WORDS[parts]} ", text)
            text = text.replace(sign, f" {_FRACTION_WORDS[parts]} ")
    return text


@cache
def _reader(language: str) -> _Reader:
    return _Reader(language, WORDS[language])


@lru_cache(maxsize=20_000)
def _spell(number: int, language: str, to: str = "cardinal") -> str:
    if language == "zh":
        return chinese_cardinal(number)
    from num2words import num2words  # only a text with digits pays for it

    return str(num2words(number, lang=language, to=to)).replace("\xad", "")


class _Reader:
    """The rules of one language."""

    def __init__(self, language: str, words: NumberWords) -> None:
        self._language, self._words = language, words
        d, g = re.escape(words.decimal), words.group
        self._group = re.compile(g)
        # Possessive, and never from the middle of a run: long runs of digits must not take long.
        number = rf"(?>\d{{1,3}}(?:{g}\d{{3}})++(?!\d)|\d++)(?:{d}\d++)?"
        signs = "|".join(sorted(map(re.escape, words.money), key=len, reverse=True))
        scale = (
            rf"(?:\s?(?P<scale>{words.scales})(?!\w))?"
            if words.space
            else (rf"(?P<scale>{words.scales})?")
        )
        minus = r"(?P<minus>(?<![\w)\].,])[-−–])?" if words.space else r"(?P<minus>(?<!\d)[-−])?"
        rules: list[tuple[str, Callable[[re.Match[str]], str]]] = [
            (r"(?<!\d)(\d{4})-(\d\d?)-(\d\d?)(?!\d)", lambda m: self._date(m, m[1], m[2], m[3])),
            (r"(?<!\d)(\d{4})/(\d\d?)/(\d\d?)(?!\d)", lambda m: self._date(m, m[1], m[2], m[3])),
            (r"(?<!\d)(\d\d?)([/.])(\d\d?)\2(\d{4})(?!\d)", self._day_first),
            (
                r"(?<![\d:])(2[0-4]|[01]?\d):([0-5]\d)(?::([0-5]\d))?(?![\d:])"
                r"(?P<half>\s?[aApP]\.?[mM]\b\.?)?(?P<oclock>\s?Uhr\b)?",
                self._time,
            ),
            (rf"(?<!\d){minus}(?P<sign>{signs})\s?(?P<number>{number}){scale}", self._money),
            (rf"(?<!\d){minus}(?P<number>{number}){scale}\s?(?P<sign>{signs})", self._money),
            (rf"(?<!\d){minus}(?P<number>{number})\s?[%％]", self._percent),
            (
                rf"(?<!\d){minus}(?P<number>{number})\s?°\s?(?P<scale>[CF](?![A-Za-z]))?",
                self._degree,
            ),
            *self._ordinals(),
            (r"(?<![\d.])\d++(?:\.\d++){2,}", self._version),
            (r"(?<![\d-])\+?\d++(?:-\d++)+", self._hyphened),
            (rf"(?<!\d)(?P<from>{number})\s?[–—~～]\s?(?=\d)", self._range),
            (rf"(?<!\d){minus}(?P<number>{number})", self._plain),
            (r"\d+", lambda m: self._apart(m, self._digits(m[0]))),
        ]
        if language == "zh":
            rules.insert(0, (r"(?<!\d)(\d{4})(?=年)", lambda m: self._digits(m[1])))
            rules.insert(1, (rf"(?<![\d.,])2(?={_CHINESE_COUNTERS})", lambda m: "两"))
        elif language == "ko":
            rules.insert(0, (rf"(?<![\d.,])(\d\d?)\s?(?={_KOREAN_COUNTERS})", self._counted))
        self._rules = [(re.compile(pattern), rule) for pattern, rule in rules]

    def read(self, text: str) -> str:
        """`text` with all numbers in words."""
        for pattern, rule in self._rules:
            text = pattern.sub(rule, text)
        return text

    # ------------------------------------------------------------------------- numbers themselves
    def _digits(self, digits: str) -> str:
        if self._language == "zh":
            return "".join(DIGITS[int(c)] for c in digits)
        if self._language == "ja":
            return "".join(("〇" + DIGITS[1:])[int(c)] for c in digits)
        return " ".join(_spell(int(c), self._language) for c in digits)

    def _whole(self, digits: str) -> str:
        if len(digits) > _MOST_DIGITS or (len(digits) > 1 and digits[0] == "0"):
            return self._digits(digits)
        return _spell(int(digits), self._language)

    def _number(self, number: str) -> str:
        whole, _, fraction = number.partition(self._words.decimal)
        said = self._whole(self._group.sub("", whole))
        if fraction:
            space = self._words.space
            said += space + self._words.point.strip() + space + self._digits(fraction)
        return said

    def _year(self, digits: str) -> str:
        year = int(digits)
        if self._language in ("en", "de") and (1100 <= year < 2000 or 2010 <= year < 2100):
            return _spell(year, self._language, "year")
        if self._language == "zh":
            return self._digits(digits)
        return self._whole(digits)

    # ----------------------------------------------------------------------------------- the rules
    def _apart(self, match: re.Match[str], said: str) -> str:
        """`said`, kept apart from a letter that stood next to the digits."""
        text, (start, end) = match.string, match.span()
        if self._words.space:
            if start and text[start - 1].isalnum():
                said = " " + said
            if text[end : end + 1].isalnum():
                said += " "
        return said

    def _signed(self, match: re.Match[str], said: str) -> str:
        if match["minus"]:
            said = self._words.minus + self._words.space + said
        return self._apart(match, said)

    def _plain(self, match: re.Match[str]) -> str:
        number = match["number"]
        bare = number.isdecimal() and len(number) == 4 and self._language != "zh"
        said = self._year(number) if bare and not match["minus"] else self._number(number)
        return self._signed(match, said)

    def _percent(self, match: re.Match[str]) -> str:
        said = self._number(match["number"])
        return self._signed(match, self._words.percent.format(said))

    def _degree(self, match: re.Match[str]) -> str:
        kind = {None: 0, "C": 1, "F": 2}[match["scale"]]
        said = self._number(match["number"])
        return self._signed(match, self._words.degree[kind].format(said))

    def _money(self, match: re.Match[str]) -> str:
        number, scale = match["number"], match["scale"]
        one, many, cent, cents = self._words.money[match["sign"]]
        whole, _, fraction = number.partition(self._words.decimal)
        space = self._words.space
        if scale or not cent or len(fraction) not in (0, 2) or len(whole) > _MOST_DIGITS:
            if scale and self._language in ("fr", "es", "it", "pt"):
                many = "de " + many if self._language != "it" else "di " + many
            parts = (self._number(number), scale, many)
            return self._signed(match, space.join(p for p in parts if p))
        amount = int(self._group.sub("", whole))
        said = self._unit(amount, one, many)
        if fraction and int(fraction):
            hundredths = self._unit(int(fraction), cent, cents)
            said = hundredths if amount == 0 else said + self._words.cents + hundredths
        return self._signed(match, said)

    def _unit(self, amount: int, one: str, many: str) -> str:
        language = self._language
        said = self._whole(str(amount))
        if amount == 1:
            feminine = one in ("livre", "libra", "sterlina", "копейка", "иена")
            ones = {"de": "ein", "es": "un", "it": "un", "fr": "un", "pt": "um", "ru": "один"}
            her = {"fr": "une", "es": "una", "it": "una", "pt": "uma", "ru": "одна"}
            return f"{(her if feminine else ones).get(language, said)} {one}"
        if language == "ru":
            return f"{said} {_russian(amount, one, many)}"
        return f"{said} {many}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute = int(match[1]), int(match[2])
        language = self._language
        said_hour = self._korean(hour) if language == "ko" else self._whole(str(hour))
        half = (match["half"] or "").strip()
        if minute:
            said_minute = self._whole(str(minute))
            if language == "en" and minute < 10:
                said_minute = "oh " + said_minute
            said = self._words.time.format(hour=said_hour, minute=said_minute)
        elif half:
            said = said_hour
        elif language == "en" and not 1 <= hour <= 12:
            said = f"{said_hour} hundred"
        else:
            said = self._words.full_hour.format(hour=said_hour)
        if match[3] and int(match[3]):
            said += f"{self._words.space}{self._whole(str(int(match[3])))}"
            said += {"zh": "秒", "ja": "秒", "ko": "초"}.get(language, "")
        said = f"{said} {half}" if half else said
        return self._apart(match, said)

    def _day_first(self, match: re.Match[str]) -> str:
        first, second, year = match[1], match[3], match[4]
        if self._language == "en" and match[2] == "/" and int(first) <= 12:
            return self._date(match, year, first, second)
        return self._date(match, year, second, first)

    def _date(self, match: re.Match[str], year: str, month: str, day: str) -> str:
        month_number, day_number = int(month), int(day)
        if not (1 <= month_number <= 12 and 1 <= day_number <= 31):
            parts = [self._whole(p) for p in re.findall(r"\d+", match[0])]
            return self._apart(match, (self._words.space or "、").join(parts))
        language = self._language
        if self._words.months:
            said_month = self._words.months[month_number - 1]
        elif language == "ko" and month_number in (6, 10):
            said_month = {6: "유", 10: "시"}[month_number]
        else:
            said_month = self._whole(str(month_number))
        said_year = self._year(year)
        if language == "ru":
            said_year = _genitive(_spell(int(year), "ru", "ordinal"))
        said = self._words.date.format(day=self._day(day_number), month=said_month, year=said_year)
        return self._apart(match, said)

    def _day(self, day: int) -> str:
        if self._language == "en":
            return _spell(day, "en", "ordinal")
        if self._language == "de":
            return _spell(day, "de", "ordinal") + "r"
        if self._language == "ru":
            return _genitive(_spell(day, "ru", "ordinal"))
        if day == 1 and self._language in ("fr", "it", "pt"):
            return {"fr": "premier", "it": "primo", "pt": "primeiro"}[self._language]
        return self._whole(str(day))

    def _ordinals(self) -> list[tuple[str, Callable[[re.Match[str]], str]]]:
        def spelt(ending: str = "") -> Callable[[re.Match[str]], str]:
            def rule(m: re.Match[str]) -> str:
                said = _spell(int(m[1].replace(",", "")), self._language, "ordinal")
                return self._apart(m, said + ending)

            return rule

        def gendered(m: re.Match[str]) -> str:
            said = _spell(int(m[1]), self._language, "ordinal")
            return self._apart(m, re.sub(r"o\b", "a", said) if m[2] == "ª" else said)

        def russian(m: re.Match[str]) -> str:
            said = _spell(int(m[1]), "ru", "ordinal")
            return _genitive(said) if m[2] == "го" else said

        def first(m: re.Match[str]) -> str:
            return "première" if m[1] in ("re", "ère") else "premier"

        if self._language == "en":
            return [(r"(?i)(?<![\d.,])(\d{1,3}(?:,\d{3}){1,2}|\d{1,9})(?:st|nd|rd|th)\b", spelt())]
        if self._language == "de":
            months = "|".join(self._words.months)
            after = r"(?<=am |em |om |um |is )"  # am, dem, vom, zum, bis
            return [
                (rf"{after}(\d\d?)\.\s?(?={months})", spelt("n ")),
                (rf"(?<!\d)(\d\d?)\.\s?(?={months})", spelt("r ")),
            ]
        if self._language == "fr":
            return [
                (r"(?<!\d)1(ers?|re|ère)\b", first),
                (r"(?<!\d)(\d{1,6})(?:e|ème|ième)\b", spelt()),
            ]
        if self._language in ("es", "it", "pt"):
            return [(r"(?<!\d)(\d{1,3})\.?([ºª])", gendered)]
        if self._language == "ru":
            return [(r"(?<!\d)(\d{1,6})-(й|го|ый|ий|ой)\b", russian)]
        return []

    def _version(self, match: re.Match[str]) -> str:
        parts = match[0].split(".")
        space = self._words.space
        if self._words.group != "," and all(len(p) == 3 for p in parts[1:]) and len(parts[0]) <= 3:
            return match[0]  # thousands, where a full stop parts them
        point = f"{space}{self._words.point.strip()}{space}"
        return self._apart(match, point.join(self._whole(p) for p in parts))

    def _hyphened(self, match: re.Match[str]) -> str:
        parts = match[0].lstrip("+").split("-")
        plus = self._words.plus + self._words.space if match[0][0] == "+" else ""
        like_range = len(parts) == 2 and not any(len(p) > 1 and p[0] == "0" for p in parts)
        like_phone = [len(p) for p in parts] == [3, 4]
        short = max(map(len, parts)) <= 4
        if short and like_range and not like_phone and int(parts[0]) < int(parts[1]):
            space = self._words.space
            said = [self._year(p) if len(p) == 4 else self._whole(p) for p in parts]
            return self._apart(match, f"{said[0]}{space}{self._words.to}{space}{said[1]}")
        comma = ", " if self._words.space else "，"
        read = self._whole if max(map(len, parts)) <= 2 else self._digits
        return self._apart(match, plus + comma.join(read(p) for p in parts))

    def _range(self, match: re.Match[str]) -> str:
        number, space = match["from"], self._words.space
        bare = number.isdecimal() and len(number) == 4
        said = self._year(number) if bare else self._number(number)
        return f"{self._apart(match, said).rstrip()}{space}{self._words.to}{space}"

    def _korean(self, number: int) -> str:
        if not 1 <= number <= 99:
            return self._whole(str(number))
        tens, ones = divmod(number, 10)
        return "스무" if number == 20 else _KOREAN_TENS[tens] + _KOREAN_ONES[ones]

    def _counted(self, match: re.Match[str]) -> str:
        said = self._korean(int(match[1]))
        before = match.string[: match.start()][-1:]
        return f"{' ' if before.isalnum() else ''}{said} "


def _genitive(ordinal: str) -> str:
    """A Russian masculine ordinal in the genitive; only its last word bends."""
    if ordinal.endswith("третий"):
        return ordinal[:-2] + "ьего"
    return re.sub(r"(?:ый|ий|ой)\Z", "ого", ordinal)


def _russian(amount: int, one: str, many: str) -> str:
    """The form of a Russian unit after a number: of one, of two to four, of many."""
    last, last_two = amount % 10, amount % 100
    if last == 1 and last_two != 11:
        return one
    if 2 <= last <= 4 and not 12 <= last_two <= 14 and one != many:
        if one.endswith("а"):
            return one[:-1] + ("и" if one.endswith("ка") else "ы")
        return one[:-1] + "я" if one.endswith("ь") else one + "а"
    return many
