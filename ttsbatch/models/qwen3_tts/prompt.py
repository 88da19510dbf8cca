"""Segment -> prompt: which text id, which code and which voice stand at every position.

A prompt is a list of positions; each adds a text vector and a code vector, either of which may be
absent. Speaker vector and reference frames are marked, and filled in on the device.
Source: package `qwen-tts` 0.1.1 (qwen3_tts_model.py, the generate methods of
modeling_qwen3_tts.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttsbatch.models.qwen3_tts.config import Qwen3TTSConfig
from ttsbatch.models.text_tokenizer import TextTokenizer

NONE = -1  # no text, or no code, at a position


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference clip, decoded and resampled."""

    key: str  # content hash: a distinct clip is encoded once
    samples: npt.NDArray[np.float32]  # [N] mono at the speaker encoder's rate
    num_frames: int  # codec frames it makes


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """The positions of one prompt, and the text that follows frame by frame."""

    text_ids: npt.NDArray[np.int64]  # [T] text id or NONE
    code_ids: npt.NDArray[np.int64]  # [T] id of the talker's code table or NONE
    trailing_ids: npt.NDArray[np.int64]  # text added to the input after frame 0, 1, …; then pad
    speaker_at: int = NONE  # position that takes the speaker vector
    reference_at: int = NONE  # position of the first reference frame
    reference: Reference | None = None
    in_context: bool = False  # the reference's codes are in the prompt


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a prompt is made of, resolved by the family."""

    text: str
    language: str | None  # key of `language_ids`; None: auto
    speaker: str | None = None  # key of `speaker_ids`
    instruct: str | None = None
    reference: Reference | None = None
    reference_text: str | None = None  # given: cloned in context; else by speaker vector alone
    streaming_text: bool = False  # text fed frame by frame instead of before the first


class PromptBuilder:
    """Builds layouts for one checkpoint."""

    def __init__(self, config: Qwen3TTSConfig, tokenizer: TextTokenizer) -> None:
        self.config, self._tokenizer = config, tokenizer
        self._role = [config.im_start_id, *tokenizer.encode("assistant\n")]
        self._user = [config.im_start_id, *tokenizer.encode("user\n")]
        self._end = [config.im_end_id, *tokenizer.encode("\n")]

    def build(self, spoken: Spoken) -> PromptLayout:
        """The layout of one prompt. `spoken.text` is not empty."""
        c, t = self.config, self.config.talker
        text_ids: list[int] = []
        code_ids: list[int] = []

        def put(text: list[int], codes: list[int]) -> None:
            text_ids.extend(text)
            code_ids.extend(codes)

        if spoken.instruct:
            ids = [*self._user, *self._tokenizer.encode(spoken.instruct.strip()), *self._end]
            put(ids, [NONE] * len(ids))
        put(self._role, [NONE] * len(self._role))
        header = self._header(spoken)
        speaker_at = len(text_ids) + header.index(NONE) if NONE in header else NONE
        put([c.tts_pad_id] * (len(header) - 1) + [c.tts_bos_id], header)

        text = self._tokenizer.encode(spoken.text.strip())
        trailing: list[int] = []
        reference_at = NONE
        in_context = spoken.reference is not None and spoken.reference_text is not None
        if in_context:
            assert spoken.reference is not None
            assert spoken.reference_text is not None
            said = self._tokenizer.encode(spoken.reference_text.strip())
            said = [*said, *text, c.tts_eos_id]
            heard = [t.codec_bos_id, *[NONE] * spoken.reference.num_frames]
            if spoken.streaming_text:
                reference_at = len(text_ids) + 1
                trailing = said[len(heard) :]
                put((said + [c.tts_pad_id] * len(heard))[: len(heard)], heard)
            else:
                put(said, [t.codec_pad_id] * len(said))
                reference_at = len(text_ids) + 1
                put([c.tts_pad_id] * len(heard), heard)
        elif spoken.streaming_text:
            put(text[:1], [t.codec_bos_id])
            trailing = [*text[1:], c.tts_eos_id]
        else:
            put([*text, c.tts_eos_id], [t.codec_pad_id] * (len(text) + 1))
            put([c.tts_pad_id], [t.codec_bos_id])
        return PromptLayout(
            np.array(text_ids, np.int64),
            np.array(code_ids, np.int64),
            np.array(trailing, np.int64),
            speaker_at,
            reference_at,
            spoken.reference,
            in_context,
        )

    def _header(self, spoken: Spoken) -> list[int]:
        """Codes of the header but its last (the begin code); NONE where the speaker vector goes."""
        t = self.config.talker
        language = spoken.language
        if spoken.speaker is not None and language in (None, "chinese"):
            language = t.speaker_dialects.get(spoken.speaker, language)
        if language is None:
            ids = [t.nothink_id, t.think_bos_id, t.think_eos_id]
        else:
            ids = [t.think_id, t.think_bos_id, t.language_ids[language], t.think_eos_id]
        if spoken.speaker is not None:
            ids.append(t.speaker_ids[spoken.speaker])
        elif spoken.reference is not None:
            ids.append(NONE)
        return [*ids, t.codec_pad_id]
