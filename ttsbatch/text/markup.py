"""One policy for markup in a corpus, the same for every model.

- Control tokens (`<|...|>`, `[INST]`), HTML, XML and SSML tags and comments go; what stands between
  two tags stays. A tag has its name right after the `<`: a bare `<` between words stays.
- Character references (`&nbsp;`, `&#39;`) become their characters.
- Markdown: the signs of emphasis, code, headings, quotes and list items go; a link is its label.
- A URL becomes its host, a mail address its two halves, with the language's words for `.` and `@`.
- `[pause:0.5s]`, `[laughing]`, `[12]` go; other square brackets go and their words stay. A stage
  direction in round brackets goes at the start of a text: `(quietly)`.
- If that leaves nothing to say, the signs alone go and all words stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from ttsbatch.text.clean import has_speech

_TAG_WORDS = (
    r"pauses?|break|silence|breath\w*|inhal\w*|exhal\w*|laugh\w*|chuckl\w*|giggl\w*|sigh\w*|cough\w*"
    r"|sob\w*|cry|crying|gasp\w*|whisper\w*|shout\w*|yawn\w*|groan\w*|sniff\w*|clears? throat|music"
    r"|applause|noise|happy|sad|angry|excited|sarcastic\w*|INST|/INST|CLS|SEP|PAD|MASK|UNK|BOS|EOS"
)
_MANNERS = (
    r"(?:quiet|soft|loud|angri|sad|happi|slow|nervous|excited|cold|gent|calm|stern|cheerful|bitter"
    r"|gloomi|tired|warm|serious|anxious|fearful|sarcastical)ly"
)
_ATTRIBUTE = r"""\s+[\w:@.-]{1,60}\s?=\s?(?:"[^"<>]{0,2000}"|'[^'<>]{0,2000}'|[^\s"'<>=]{1,500})"""
_HOST = r"(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}|\d{1,3}(?:\.\d{1,3}){3}|localhost"
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"&(?:[A-Za-z]\w{1,30}|#\d{1,7}|#[xX][\da-fA-F]{1,6});"), lambda m: _character(m)),
    (re.compile(r"<[|｜][^<>]{0,200}?[|｜]>"), " "),
    (re.compile(r"<<?/?SYS>>?"), " "),
    (re.compile(r"<!--[^<>]{0,5000}-->|<[!?][A-Za-z][^<>]{0,500}>"), " "),
    (re.compile(r"<((?:https?|ftp)://[^\s<>]{1,2000})>"), r" \1 "),
    (
        re.compile(
            r"</?(?:b|i|u|em|strong|a|span|sub|sup|font|mark)(?:" + _ATTRIBUTE + r"){0,20}>"
        ),
        "",
    ),
    (re.compile(r"</?[^\W\d][\w:.-]{0,60}(?:" + _ATTRIBUTE + r"){0,20}\s?/?>"), " "),
    (re.compile(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}(?:\s\"[^\"]{0,500}\")?\)"), r"\1"),
    (re.compile(r"(?m)^\s{0,3}(?:```|~~~).{0,40}$"), " "),
    (re.compile(r"(?m)^[ \t]*(?:[-*_][ \t]?){3,}$"), " "),
    (re.compile(r"(?m)^\s{0,3}#{1,6}[ \t]+"), ""),
    (re.compile(r"(?m)^\s{0,8}(?:>[ \t]*)+"), ""),
    (re.compile(r"(?m)^\s{0,8}[-*+][ \t]+(?=[^\W\d]|[^\w\s.+-])"), ""),
    (re.compile(r"`+|~~+|\*\*+|(?<!\w)__+|__+(?!\w)"), ""),
    (re.compile(r"(?<![\w*])\*(?=\S)([^*\n]{1,500})(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)_(?=\S)([^_\n]{1,500})(?<=\S)_(?!\w)"), r"\1"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|~>-])"), r"\1"),
    (re.compile(r"\[(?:" + _TAG_WORDS + r")(?:[\s:=][^\[\]]{0,60})?/?\]", re.IGNORECASE), " "),
    (re.compile(r"\[\^?\d{1,4}\]"), ""),
    (re.compile(r"\[[A-Za-z_]{1,30}[:=][^\[\]\s]{0,60}\]"), " "),
    (re.compile(r"\A\s*\((?:" + _MANNERS + "|" + _TAG_WORDS + r")\)\s*(?=\S)"), ""),
    (re.compile(r"[\[\]]|[|｜]+>?|<(?=[|｜])"), " "),
)
_SIGN = re.compile(r"[<>&*_`#|｜~@\[\]\\{]|://|(?i:www\.)|^[^\S\n]*[-+(]", re.MULTILINE)
_URL = re.compile(
    rf"(?:\b(?:https?|ftp)://(?:www\.)?|\bwww\.)({_HOST})(?::\d{{1,5}})?"
    r"(?:[/?#](?:[^\s<>\"'()]{0,2000}[^\s<>\"'().,;:!?…。，])?)?",
    re.IGNORECASE,
)
_MAIL = re.compile(rf"\b(?:mailto:)?([\w.+-]{{1,64}})@({_HOST})")
_SCHEME = re.compile(r"\b\w{1,20}://|://")
_SIGNS = re.compile(r"[<>|｜\[\]{}()`*_#~\\&=/:]+")
_DOT_AT = {
    "en": ("dot", "at"),
    "de": ("Punkt", "at"),
    "fr": ("point", "arobase"),
    "es": ("punto", "arroba"),
    "it": ("punto", "chiocciola"),
    "pt": ("ponto", "arroba"),
    "ru": ("точка", "собака"),
    "zh": ("点", "艾特"),
    "ja": ("ドット", "アット"),
    "ko": ("닷", "골뱅이"),
}


def without_markup(text: str, language: str) -> str:
    """`text` without markup, by the policy above; line breaks may remain.

    Args:
        text: letters already plain.
        language: whose words a URL is read with; an unknown one keeps its dots.
    """
    if not _SIGN.search(text):
        return text
    out = _once(text, language)
    while out != text:  # what was wrapped in markup may be markup; every round takes some away
        text, previous = out, text
        out = _once(text, language)
        if len(out) > len(text) and len(text) > len(previous):
            break
    return out


def words_alone(text: str) -> str:
    """`text` with every sign of markup made a space: what is left where markup is all there is."""
    return _SIGNS.sub(" ", text)


def _once(text: str, language: str) -> str:
    before = text
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    dot_at = _DOT_AT.get(language)
    text = _URL.sub(lambda m: _host(m[1], dot_at), text)
    text = _MAIL.sub(lambda m: _mail(m, dot_at), text)
    text = _SCHEME.sub(" ", text)
    return text if has_speech(text) or not has_speech(before) else words_alone(before)


def _character(match: re.Match[str]) -> str:
    found = html.unescape(match[0])
    return " " if found == match[0] or not found.isprintable() else found


def _host(host: str, dot_at: tuple[str, str] | None) -> str:
    return host if dot_at is None else host.replace(".", f" {dot_at[0]} ")


def _mail(match: re.Match[str], dot_at: tuple[str, str] | None) -> str:
    if dot_at is None:
        return match[0].removeprefix("mailto:")
    return f"{_host(match[1], dot_at)} {dot_at[1]} {_host(match[2], dot_at)}"
