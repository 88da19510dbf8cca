"""The words around numbers, by language: units of money, months, signs."""

from __future__ import annotations

from dataclasses import dataclass

Money = tuple[str, str, str, str]
"""Unit and hundredth, each for one and for many."""


@dataclass(frozen=True, slots=True)
class NumberWords:
    """How one language writes numbers and what it says around them."""

    decimal: str  # character before the fraction
    group: str  # regex of what parts thousands
    point: str
    minus: str
    plus: str
    to: str  # between the ends of a range
    percent: str  # with {} for the number
    degree: tuple[str, str, str]  # alone, Celsius, Fahrenheit; {} for the number
    money: dict[str, Money]
    months: tuple[str, ...] = ()
    date: str = ""  # {day}, {month}, {year}
    time: str = ""  # {hour}, {minute}
    full_hour: str = ""  # {hour}
    cents: str = " "  # between units and hundredths
    scales: str = "(?!)"  # regex of words that stand between a number and its unit
    space: str = " "  # between number words and their neighbours


_EN = ("January", "February", "March", "April", "May", "June", "July", "August", "September")
_DE = ("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September")
_FR = ("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre")
_ES = ("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre")
_IT = ("gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto")
_PT = ("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho", "agosto", "setembro")
_RU = ("января", "февраля", "марта", "апреля", "мая", "июня", "июля", "августа", "сентября")
_ASIAN_MONEY = ("$", "€", "£", "¥", "₩")


def _asian(*names: str) -> dict[str, Money]:
    return {s: (n, n, "", "") for s, n in zip(_ASIAN_MONEY, names, strict=True)}


WORDS = {
    "en": NumberWords(
        decimal=".",
        group=",",
        point="point",
        minus="minus",
        plus="plus",
        to="to",
        percent="{} percent",
        degree=("{} degrees", "{} degrees Celsius", "{} degrees Fahrenheit"),
        money={
            "$": ("dollar", "dollars", "cent", "cents"),
            "€": ("euro", "euros", "cent", "cents"),
            "£": ("pound", "pounds", "penny", "pence"),
            "¥": ("yen", "yen", "", ""),
        },
        months=(*_EN, "October", "November", "December"),
        date="{month} {day}, {year}",
        time="{hour} {minute}",
        full_hour="{hour} o'clock",
        cents=" and ",
        scales="thousand|million|billion|trillion",
    ),
    "de": NumberWords(
        decimal=",",
        group=r"\.",
        point="Komma",
        minus="minus",
        plus="plus",
        to="bis",
        percent="{} Prozent",
        degree=("{} Grad", "{} Grad Celsius", "{} Grad Fahrenheit"),
        money={
            "$": ("Dollar", "Dollar", "Cent", "Cent"),
            "€": ("Euro", "Euro", "Cent", "Cent"),
            "£": ("Pfund", "Pfund", "Penny", "Pence"),
            "¥": ("Yen", "Yen", "", ""),
        },
        months=(*_DE, "Oktober", "November", "Dezember"),
        date="{day} {month} {year}",
        time="{hour} Uhr {minute}",
        full_hour="{hour} Uhr",
        scales="Tausend|Millionen?|Milliarden?|Mio\\.?|Mrd\\.?",
    ),
    "fr": NumberWords(
        decimal=",",
        group=r"[. ]",
        point="virgule",
        minus="moins",
        plus="plus",
        to="à",
        percent="{} pour cent",
        degree=("{} degrés", "{} degrés Celsius", "{} degrés Fahrenheit"),
        money={
            "$": ("dollar", "dollars", "cent", "cents"),
            "€": ("euro", "euros", "centime", "centimes"),
            "£": ("livre", "livres", "penny", "pence"),
            "¥": ("yen", "yens", "", ""),
        },
        months=(*_FR, "octobre", "novembre", "décembre"),
        date="{day} {month} {year}",
        time="{hour} heures {minute}",
        full_hour="{hour} heures",
        scales="mille|millions?|milliards?",
    ),
    "es": NumberWords(
        decimal=",",
        group=r"\.",
        point="coma",
        minus="menos",
        plus="más",
        to="a",
        percent="{} por ciento",
        degree=("{} grados", "{} grados Celsius", "{} grados Fahrenheit"),
        money={
            "$": ("dólar", "dólares", "centavo", "centavos"),
            "€": ("euro", "euros", "céntimo", "céntimos"),
            "£": ("libra", "libras", "penique", "peniques"),
            "¥": ("yen", "yenes", "", ""),
        },
        months=(*_ES, "octubre", "noviembre", "diciembre"),
        date="{day} de {month} de {year}",
        time="{hour} y {minute}",
        full_hour="{hour} horas",
        cents=" con ",
        scales="mil|millón|millones",
    ),
    "it": NumberWords(
        decimal=",",
        group=r"\.",
        point="virgola",
        minus="meno",
        plus="più",
        to="a",
        percent="{} per cento",
        degree=("{} gradi", "{} gradi Celsius", "{} gradi Fahrenheit"),
        money={
            "$": ("dollaro", "dollari", "centesimo", "centesimi"),
            "€": ("euro", "euro", "centesimo", "centesimi"),
            "£": ("sterlina", "sterline", "penny", "penny"),
            "¥": ("yen", "yen", "", ""),
        },
        months=(*_IT, "settembre", "ottobre", "novembre", "dicembre"),
        date="{day} {month} {year}",
        time="{hour} e {minute}",
        full_hour="{hour}",
        cents=" e ",
        scales="mila|milione|milioni|miliardo|miliardi",
    ),
    "pt": NumberWords(
        decimal=",",
        group=r"\.",
        point="vírgula",
        minus="menos",
        plus="mais",
        to="a",
        percent="{} por cento",
        degree=("{} graus", "{} graus Celsius", "{} graus Fahrenheit"),
        money={
            "R$": ("real", "reais", "centavo", "centavos"),
            "$": ("dólar", "dólares", "centavo", "centavos"),
            "€": ("euro", "euros", "cêntimo", "cêntimos"),
            "£": ("libra", "libras", "penny", "pence"),
            "¥": ("iene", "ienes", "", ""),
        },
        months=(*_PT, "outubro", "novembro", "dezembro"),
        date="{day} de {month} de {year}",
        time="{hour} horas e {minute}",
        full_hour="{hour} horas",
        cents=" e ",
        scales="mil|milhão|milhões|bilhão|bilhões",
    ),
    "ru": NumberWords(
        decimal=",",
        group=r"[. ]",
        point="запятая",
        minus="минус",
        plus="плюс",
        to="до",
        percent="{} процентов",
        degree=("{} градусов", "{} градусов Цельсия", "{} градусов Фаренгейта"),
        money={  # many: as after five
            "₽": ("рубль", "рублей", "копейка", "копеек"),
            "$": ("доллар", "долларов", "цент", "центов"),
            "€": ("евро", "евро", "цент", "центов"),
            "£": ("фунт", "фунтов", "пенс", "пенсов"),
            "¥": ("иена", "иен", "", ""),
        },
        months=(*_RU, "октября", "ноября", "декабря"),
        date="{day} {month} {year} года",
        time="{hour} {minute}",
        full_hour="{hour} часов",
        scales="тысяч|миллион(?:а|ов)?|миллиард(?:а|ов)?",
    ),
    "zh": NumberWords(
        decimal=".",
        group="[,，]",
        point="点",
        minus="负",
        plus="加",
        to="到",
        percent="百分之{}",
        degree=("{}度", "{}摄氏度", "{}华氏度"),
        money=_asian("美元", "欧元", "英镑", "元", "韩元"),
        date="{year}年{month}月{day}日",
        time="{hour}点{minute}分",
        full_hour="{hour}点",
        scales="[万亿]",
        space="",
    ),
    "ja": NumberWords(
        decimal=".",
        group="[,，]",
        point="点",
        minus="マイナス",
        plus="プラス",
        to="から",
        percent="{}パーセント",
        degree=("{}度", "{}度", "華氏{}度"),
        money=_asian("ドル", "ユーロ", "ポンド", "円", "ウォン"),
        date="{year}年{month}月{day}日",
        time="{hour}時{minute}分",
        full_hour="{hour}時",
        scales="[万億兆]",
        space="",
    ),
    "ko": NumberWords(
        decimal=".",
        group=",",
        point=" 점 ",
        minus="마이너스",
        plus="플러스",
        to="에서",
        percent="{} 퍼센트",
        degree=("{}도", "섭씨 {}도", "화씨 {}도"),
        money=_asian("달러", "유로", "파운드", "엔", "원"),
        date="{year}년 {month}월 {day}일",
        time="{hour}시 {minute}분",
        full_hour="{hour}시",
        scales="[만억조]",
    ),
}
