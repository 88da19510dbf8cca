"""Chinese numerals: the cardinal of a whole number."""

from __future__ import annotations

DIGITS = "零一二三四五六七八九"
_PLACES = ("", "十", "百", "千")
_GROUPS = ("", "万", "亿", "万亿")


def chinese_cardinal(number: int) -> str:
    """The cardinal of 0 <= number < 10**16, with 两 before 百, 千, 万 and 亿 where it leads."""
    if number == 0:
        return DIGITS[0]
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    out = ""
    for power in reversed(range(len(groups))):
        group = groups[power]
        if group == 0:
            continue
        if out and (group < 1000 or groups[power + 1] == 0):
            out += DIGITS[0]
        leads = not out
        said = _below_ten_thousand(group)
        if group == 2 and power:
            said = "两"
        elif leads and said.startswith("一十"):
            said = said[1:]
        if power == 3 and groups[2]:
            out += said + "万"  # 万亿 is said once: 三万二千亿
        else:
            out += said + _GROUPS[power]
    return out


def _below_ten_thousand(number: int) -> str:
    out, gap = "", False
    for place in (3, 2, 1, 0):
        digit = number // 10**place % 10
        if digit == 0:
            gap = bool(out)
            continue
        if gap:
            out += DIGITS[0]
            gap = False
        out += ("两" if digit == 2 and place >= 2 else DIGITS[digit]) + _PLACES[place]
    return out
