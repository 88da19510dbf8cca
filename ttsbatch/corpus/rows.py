"""A row as it was read -> an Utterance with every default filled in, or why it is none.

What a row may say depends on the model's card alone, so a corpus is checked before any weights
are loaded. Faults are looked for in a fixed order, and the first one is the reason given: id,
text, types, options the model has no use for, values, voice and reference, language, letters that
the model does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any, Literal

from ttsbatch.corpus.fields import (
    ROW_FIELD_SET,
    has_lone_surrogate,
    near_field,
)
from ttsbatch.corpus.languages import language_code
from ttsbatch.corpus.open import source_stem
from ttsbatch.corpus.plainjson import plain_json
from ttsbatch.corpus.references import ReferenceProblem, References
from ttsbatch.corpus.values import (
    Reject,
    check_values,
    repeated,
    text_of,
    typed,
    whole_of,
    wrong_type,
)
from ttsbatch.errors import PlanError
from ttsbatch.plan import RowDefaults
from ttsbatch.text.clean import has_speech, spoken
from ttsbatch.text.normalize import normalized
from ttsbatch.types import AUTO, OPTION_FIELDS, Failure, ModelCard, Record, Sampling, Utterance

Warn = Callable[[str], None]

_SAMPLING_FIELDS = frozenset(f.name for f in fields(Sampling))
_PLAIN_FIELDS = frozenset(("voice", "language"))  # all that most rows have beside id and text
_PLAIN_TYPES = frozenset((str, int, bool, type(None)))


def check_defaults(
    defaults: RowDefaults,
    card: ModelCard,
    unsupported_language: Literal["reject", "warn"] = "reject",
    references: References | None = None,
) -> None:
    """See that the options say nothing that the model has no use for, or cannot do.

    Raises:
        PlanError: with the option's name, what it is and what was expected.
    """
    given: dict[str, Any] = {
        name: getattr(defaults, name)
        for name in ("instruct", "ref_audio", "ref_text", "max_seconds")
    }
    given |= {name: getattr(defaults.sampling, name) for name in sorted(_SAMPLING_FIELDS)}
    for name, value in given.items():
        if value is not None and name not in card.options:
            raise PlanError(f"--{name.replace('_', '-')}: {card.name} has no use for it")
    if expected := _no_frame(defaults.max_seconds, card):
        raise PlanError(f"--max-seconds is {defaults.max_seconds}; expected {expected}")
    if defaults.voice is not None and _voice_key(defaults.voice) not in _voices(card):
        raise PlanError(f"--voice is {defaults.voice!r}; {_known_voices(card)}")
    if defaults.language is not None:
        code = _code(defaults.language)
        if code is None:
            raise PlanError(f"--language is {defaults.language!r}; {_EXPECTED_LANGUAGE}")
        if code != AUTO and code not in card.languages and unsupported_language == "reject":
            raise PlanError(f"--language is {defaults.language!r}; {_known_languages(card)}")
    for one, other, why in _both(given, card):
        names = " and ".join(f"--{n.replace('_', '-')}" for n in (one, other))
        raise PlanError(f"{names}: expected one or the other: {why}")
    if defaults.ref_audio is None:
        if defaults.ref_text is not None:
            raise PlanError("--ref-text is what is said in --ref-audio; expected both")
        return
    if defaults.voice is not None:
        raise PlanError("--voice and --ref-audio: expected one or the other")
    found = (references or References()).find(defaults.ref_audio, ".")
    if isinstance(found, ReferenceProblem):
        raise PlanError(f"--ref-audio: {found.message}")


class RowChecker:
    """Checks the rows of one run.

    Args:
        defaults: what a row gets where it says nothing itself.
        card: the model.
        unsupported_language: what becomes of a row in a language that the model does not speak.
        warn: told, once each, of field names one slip away from ours and of languages that the
            model does not speak but is asked to.
        references: what is known of reference clips already.
        mapping: what --map renamed, so that messages have the names of the file.

    Raises:
        PlanError: the defaults do not fit the model; see `check_defaults`.
    """

    def __init__(
        self,
        defaults: RowDefaults,
        card: ModelCard,
        *,
        unsupported_language: Literal["reject", "warn"] = "reject",
        warn: Warn | None = None,
        references: References | None = None,
        mapping: Mapping[str, str] | None = None,
    ) -> None:
        self._references = references or References()
        check_defaults(defaults, card, unsupported_language, self._references)
        self._defaults, self._mapping = defaults, mapping or {}
        self._card = card
        self._reject_languages = unsupported_language == "reject"
        self._warn = warn or (lambda message: None)
        self._warned: set[str] = set()
        self._near: dict[str, None] = {}  # extra names that were looked at
        self._voices = _voices(card)
        self._languages = frozenset(card.languages)
        self._unused = OPTION_FIELDS - card.options
        self._default_language = _code(defaults.language or AUTO) or AUTO
        self._auto_is_read_in = self._default_language
        if self._auto_is_read_in == AUTO and len(card.languages) == 1:
            self._auto_is_read_in = card.languages[0]
        self._default_voice = (
            card.default_voice
            if defaults.voice is None
            else self._voices[_voice_key(defaults.voice)]
        )
        self._default_ref_audio: str | None = None
        if defaults.ref_audio is not None:
            found = self._references.find(defaults.ref_audio, ".")
            assert isinstance(found, str)  # check_defaults looked
            self._default_ref_audio = found
        self._prefixes: dict[str, str] = {}  # source -> start of the ids made up for its rows

    def resolve(self, record: Record) -> Utterance | Failure:
        """The utterance that a row asks for, or the failure that names its first fault."""
        row_id: str | None = None
        try:
            row_id = self._id(record)
            return self._utterance(record, row_id)
        except Reject as e:
            row = plain_json(record.fields)
            return Failure(record.source, record.line, row_id, "validate", e.reason, e.message, row)

    def _utterance(self, record: Record, row_id: str) -> Utterance:
        own: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in record.fields.items():
            if name in ROW_FIELD_SET:
                if value is not None:
                    own[name] = value
            else:
                if name not in self._near:
                    self._look_at_name(name)
                extra[name] = value if type(value) in _PLAIN_TYPES else plain_json(value)
        own.pop("id", None)
        text = text_of(own.pop("text", None), record.fields, self._mapping)
        spoken_text = spoken(text)
        if not has_speech(spoken_text):
            raise Reject("empty_text", f'"text" is {repeated(text)}; no letter or digit to speak')
        sampling = self._defaults.sampling
        for name in own:
            own[name] = typed(name, own[name])
        if not own.keys() <= _PLAIN_FIELDS:
            sampling = self._check_options(own)
        if expected := _no_frame(own.get("max_seconds"), self._card):
            shown = repeated(own["max_seconds"])
            raise Reject("bad_value", f'"max_seconds" is {shown}; expected {expected}')
        voice, ref_audio, ref_text = self._speaker(own, record.base)
        language = self._language(own, record.fields)
        defaults = self._defaults
        if self._card.exclusive:
            self._check_exclusive({**own, "ref_audio": ref_audio, "ref_text": ref_text})
        if defaults.normalize:
            read_in = self._auto_is_read_in if language == AUTO else language
            spoken_text = normalized(text, read_in)
        if self._card.cannot_read and (why := self._card.cannot_read(spoken_text)):
            raise Reject("unsupported_language", why)
        seed = own.get("seed")
        return Utterance(
            id=row_id,
            text=text,
            spoken_text=spoken_text,
            source=record.source,
            line=record.line,
            voice=voice,
            language=language,
            seed=derived_seed(defaults.seed, row_id) if seed is None else seed,
            instruct=own.get("instruct", defaults.instruct),
            ref_audio=ref_audio,
            ref_text=ref_text,
            sampling=sampling,
            max_seconds=own.get("max_seconds", defaults.max_seconds),
            split=own.get("split", defaults.split),
            file_name=own.get("file_name"),
            extra=extra,
            given=record.fields,
        )

    def _check_options(self, own: dict[str, Any]) -> Sampling:
        """Check the less usual fields; drops from `own` what says nothing.

        Returns:
            The sampling of the row.
        """
        for name in ("instruct", "ref_text"):
            if name in own and not own[name].strip():
                del own[name]
        if unused := self._unused & own.keys():
            named = ", ".join(f'"{n}"' for n in sorted(unused))
            raise Reject("unsupported_option", f"{self._card.name} has no use for {named}")
        check_values(own)
        drawn = {k: v for k, v in own.items() if k in _SAMPLING_FIELDS}
        return replace(self._defaults.sampling, **drawn) if drawn else self._defaults.sampling

    def _check_exclusive(self, resolved: dict[str, Any]) -> None:
        resolved.setdefault("instruct", self._defaults.instruct)
        for one, other, why in _both(resolved, self._card):
            message = f'"{one}" and "{other}" are both given; expected one: {why}'
            raise Reject("unsupported_option", message)

    def _id(self, record: Record) -> str:
        value = record.fields.get("id")
        if type(value) is str:
            if value == "":
                raise Reject("bad_value", '"id" is empty; expected a name, or no "id" at all')
            if has_lone_surrogate(value):
                raise Reject("bad_unicode", '"id" holds a lone surrogate')
            return value
        if value is None:
            return f"{self._prefix(record.source)}-{record.line:06d}"
        whole = whole_of(value)
        if whole is None:
            raise wrong_type("id", value, "a string or a whole number")
        return str(whole)

    def _prefix(self, source: str) -> str:
        prefix = self._prefixes.get(source)
        if prefix is None:
            # Sources of the same file name in other folders must not share ids.
            digest = blake2b(source.encode("utf8", "surrogateescape"), digest_size=4).hexdigest()
            stem = source_stem(source).encode("utf8", "replace").decode("utf8")
            prefix = self._prefixes[source] = f"{stem}-{digest}"
        return prefix

    def _look_at_name(self, name: str) -> None:
        if len(self._near) < 10_000:
            self._near[name] = None
        near = near_field(name)
        if near is not None:
            self._warn_once(
                f"field {repeated(name)} is none of ours and rides along as it is; is it {near!r}?"
            )

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self._warn(message)

    def _speaker(
        self, own: Mapping[str, Any], base: str
    ) -> tuple[str | None, str | None, str | None]:
        """Voice, reference audio and reference text; the row's word goes before the options'."""
        voice: str | None = own.get("voice")
        ref_audio: str | None = own.get("ref_audio")
        ref_text: str | None = own.get("ref_text")
        if voice is not None and ref_audio is not None:
            raise Reject("ref_and_voice", '"voice" and "ref_audio" are both given; expected one')
        if voice is not None:
            known = self._voices.get(_voice_key(voice))
            if known is None:
                message = f'"voice" is {repeated(voice)}; {_known_voices(self._card)}'
                raise Reject("unknown_voice", message)
            voice = known
        elif ref_audio is not None:
            found = self._references.find(ref_audio, base)
            if isinstance(found, ReferenceProblem):
                raise Reject(found.reason, found.message)
            return None, found, ref_text
        elif self._default_ref_audio is not None:
            return None, self._default_ref_audio, ref_text or self._defaults.ref_text
        if ref_text is not None:
            raise Reject("ref_missing", '"ref_text" is given without "ref_audio"; expected both')
        if self._card.needs_reference:
            message = f'no "ref_audio"; {self._card.name} only clones: give one, or --ref-audio'
            raise Reject("ref_missing", message)
        if voice is None:
            voice = self._default_voice
            if voice is None and self._voices:
                message = 'no "voice"; a model with several voices needs one, or --voice; {}'
                raise Reject("unknown_voice", message.format(_known_voices(self._card)))
        return voice, None, None

    def _language(self, own: Mapping[str, Any], row: Mapping[str, Any]) -> str:
        given = own.get("language")
        if given is not None:
            code = _code(given)
            if code is None:
                message = f'"language" is {repeated(given)}; {_EXPECTED_LANGUAGE}'
                raise Reject("unknown_language", message)
        else:
            # A row that has the field and leaves it empty says auto; --language is for the others.
            code = AUTO if "language" in row else self._default_language
        if code == AUTO:
            if not self._card.speaks_auto:
                message = (
                    f'no "language"; {self._card.name} needs one; {_known_languages(self._card)}'
                )
                raise Reject("unsupported_language", message)
        elif code not in self._languages:
            if self._reject_languages:
                message = f'"language" is {repeated(given or code)}; {_known_languages(self._card)}'
                raise Reject("unsupported_language", message)
            self._warn_once(
                f"language {code} is none of {self._card.name}'s; its rows are made all the same"
            )
        return code


def derived_seed(run_seed: int, row_id: str) -> int:
    """The seed of a row that gives none: 63 bits, from the run's seed and the row's id."""
    digest = blake2b(f"{run_seed}:{row_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


_EXPECTED_LANGUAGE = "expected an ISO 639-1 or 639-3 code, an English name, or auto"


def _code(language: str) -> str | None:
    return AUTO if language.strip().lower() == AUTO else language_code(language)


def _voice_key(voice: str) -> str:
    return voice.strip().casefold()


def _voices(card: ModelCard) -> dict[str, str]:
    return {_voice_key(v): v for v in card.voices}


def _known_voices(card: ModelCard) -> str:
    if not card.voices:
        return f"{card.name} has no named voices"
    return f"known voices: {', '.join(card.voices)}"


def _known_languages(card: ModelCard) -> str:
    return f"languages of {card.name}: {', '.join(card.languages)}"


def _no_frame(seconds: float | None, card: ModelCard) -> str | None:
    """What was expected where `max_seconds` has no room for one frame of the model."""
    if seconds is None or card.frame_rate_hz is None or seconds * card.frame_rate_hz >= 1:
        return None
    return f"{1 / card.frame_rate_hz:g} or more: one frame of {card.name}"


def _both(given: Mapping[str, Any], card: ModelCard) -> list[tuple[str, str, str]]:
    """The options of `card.exclusive` of which both are given."""
    return [x for x in card.exclusive if given.get(x[0]) and given.get(x[1])]
