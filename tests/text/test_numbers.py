"""Numbers in words, rule by rule and language by language."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttsbatch.text.chinese import DIGITS, chinese_cardinal
from ttsbatch.text.normalize import normalized

CASES = {
    "en": [
        ("$2,418.37", "two thousand, four hundred and eighteen dollars and thirty-seven cents"),
        ("$1", "one dollar"),
        ("£0.05", "five pence"),
        ("-$5", "minus five dollars"),
        ("$3.5 million", "three point five million dollars"),
        ("¥500", "five hundred yen"),
        ("0.5%", "zero point five percent"),
        ("-7 °C", "minus seven degrees Celsius"),
        ("at 6:05 a.m.", "at six oh five a.m."),
        ("at 6:00", "at six o'clock"),
        ("at 15:45", "at fifteen forty-five"),
        ("on 04/05/2027", "on April fifth, twenty twenty-seven"),
        ("on 2027-12-31", "on December thirty-first, twenty twenty-seven"),
        ("on 25/12/1999", "on December twenty-fifth, nineteen ninety-nine"),
        ("3–5", "three to five"),
        ("2020–2025", "twenty twenty to twenty twenty-five"),
        ("10-12 days", "ten to twelve days"),
        ("555-0142", "five five five, zero one four two"),
        ("2nd and 23rd", "second and twenty-third"),
        ("in 2005", "in two thousand and five"),
        ("agent 007", "agent zero zero seven"),
        ("version 1.2.3", "version one point two point three"),
        ("A4 and 5km", "A four and five km"),
        ("٣ boats", "three boats"),
    ],
    "de": [
        ("1.234,50 €", "eintausendzweihundertvierunddreißig Euro fünfzig Cent"),
        ("1 €", "ein Euro"),
        ("um 15:45 Uhr", "um fünfzehn Uhr fünfundvierzig"),
        ("am 3. Mai", "am dritten Mai"),
        ("4,5 %", "vier Komma fünf Prozent"),
        ("im Jahr 1987", "im Jahr neunzehnhundertsiebenundachtzig"),
    ],
    "fr": [
        ("71 pages", "soixante et onze pages"),
        ("le 1er", "le premier"),
        ("12,50 €", "douze euros cinquante centimes"),
        ("14/03/2026", "quatorze mars deux mille vingt-six"),
    ],
    "es": [
        ("las 15:45", "las quince y cuarenta y cinco"),
        ("el 50 %", "el cincuenta por ciento"),
        ("la 3ª vez", "la tercera vez"),
    ],
    "it": [
        (
            "1.234.567 euro",
            "un milione e duecentotrentaquattromilacinquecentosessantasette euro",
        ),
        ("-3 °C", "meno tre gradi Celsius"),
    ],
    "pt": [("R$ 2,50", "dois reais e cinquenta centavos"), ("3,5", "três vírgula cinco")],
    "ru": [
        ("22 ₽", "двадцать два рубля"),
        ("5 ₽", "пять рублей"),
        ("14.03.2026", "четырнадцатого марта две тысячи двадцать шестого года"),
        ("3-й", "третий"),
    ],
    "zh": [
        ("2380.50元", "两千三百八十点五零元"),
        ("4.0%", "百分之四点零"),
        ("2026年3月14日", "二零二六年三月十四日"),
        ("7058万", "七千零五十八万"),
        ("2个人", "两个人"),
        ("-5度", "负五度"),
        ("¥12", "十二元"),
        ("15:45", "十五点四十五分"),
    ],
    "ja": [
        ("3月14日に2本", "三月十四日に二本"),
        ("2026-03-14", "二千二十六年三月十四日"),
        ("¥500", "五百円"),
    ],
    "ko": [("사과 3개", "사과 세 개"), ("책 12권", "책 열두 권"), ("50%", "오십 퍼센트")],
}


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [(language, *case) for language, cases in CASES.items() for case in cases],
)
def test_a_number_is_read_in_the_language_of_its_row(language: str, text: str, spoken: str) -> None:
    assert normalized(text, language) == spoken


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "零"),
        (10, "十"),
        (12, "十二"),
        (112, "一百一十二"),
        (200, "两百"),
        (1005, "一千零五"),
        (20_000, "两万"),
        (100_010, "十万零一十"),
        (100_000_000, "一亿"),
        (120_000_300, "一亿两千万零三百"),
        (3_000_000_000_000, "三万亿"),
    ],
)
def test_a_chinese_cardinal_has_its_zeros_where_they_are_said(number: int, said: str) -> None:
    assert chinese_cardinal(number) == said


def _value(said: str) -> int:
    total = group = digit = 0
    for char in said.replace("两", "二"):
        if char in DIGITS:
            digit = DIGITS.index(char)
        elif char in "十百千":
            group += (digit or 1) * 10 ** ("十百千".index(char) + 1)
            digit = 0
        elif char == "万":
            total += (group + digit) * 10_000
            group = digit = 0
        else:
            total = (total + group + digit) * 10**8
            group = digit = 0
    return total + group + digit


@given(st.integers(0, 10**16 - 1))
def test_a_chinese_cardinal_says_its_number(number: int) -> None:
    assert _value(chinese_cardinal(number)) == number
