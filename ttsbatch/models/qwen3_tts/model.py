"""The family's `CodecLM`: wires tokenizer, prompts, talker, predictor, speaker encoder and codec.

A step begins with the talker on the input that prefill or the step before left behind, so the
last prompt position is run by the first step and prefill makes no output but KV.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ttsbatch.kernels.embed_sum import RunningText, embed_sum
from ttsbatch.models.clips import ClipReader
from ttsbatch.models.layers import PagedKV, to_device
from ttsbatch.models.packing import Staged, pack_seats
from ttsbatch.models.protocol import (
    PAGE_SIZE,
    Draw,
    DrawSettings,
    EngineSpec,
    Frame,
    PreparedPrompt,
    Rules,
    Seat,
    SlotTensors,
)
from ttsbatch.models.qwen3_tts.card import context_frames, language_name
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_specs import SPEAKER_PREFIX
from ttsbatch.models.qwen3_tts.codec_weights import (
    load_codec_weights,
    random_decoder_weights,
    select_speaker_weights,
)
from ttsbatch.models.qwen3_tts.config import NUM_CONTROL_IDS, Qwen3TTSConfig
from ttsbatch.models.qwen3_tts.encoders import Encoders, make_encoders, random_encoders
from ttsbatch.models.qwen3_tts.predictor import Predictor, PredictorCache
from ttsbatch.models.qwen3_tts.prompt import NONE, PromptBuilder, PromptLayout, Reference, Spoken
from ttsbatch.models.qwen3_tts.sizes import talker_specs
from ttsbatch.models.qwen3_tts.talker import make_talker
from ttsbatch.models.qwen3_tts.tokenizer import BPETokenizer
from ttsbatch.models.qwen3_tts.weights import TalkerWeights, pack_talker
from ttsbatch.models.text_tokenizer import StandInTokenizer, TextTokenizer
from ttsbatch.models.weights import check_tensors, random_weights, read_safetensors
from ttsbatch.types import Failure, ModelCard, Segment

N = TypeVar("N", int, float)

MIN_FRAMES = 2  # the end token is banned before; official `min_new_tokens`
NEVER = 1 << 40  # frames: bans the end token for good
CODEC_WINDOW_FRAMES, CODEC_CONTEXT_FRAMES = 300, 25  # official chunked decode
# Smaller ones draw alike, but take logits out of the range of f32.
LEAST_TEMPERATURE, LEAST_PENALTY = 1e-20, 1e-6
KEPT_REFERENCES = 4096  # encoded references kept on the device, a few kB each


@dataclass(slots=True)
class Qwen3State:
    """What steps write to; S slots and a spare one for padding, P pages per slot."""

    kv: PagedKV
    cache: PredictorCache
    block_table: Tensor  # [S + 1, P] int32; zeros for slots without a row and for the spare
    position: Tensor  # [S] int64 where the next input is written
    x: Tensor  # [S, E] the next input
    seen: Tensor  # [S, V] bool codebook-0 ids of the row so far
    trailing: Tensor  # [S, N] int32 text ids added after frame 0, 1, …
    trailing_length: Tensor  # [S] int64
    staged: Staged


@dataclass(frozen=True, slots=True)
class EncodedReference:
    """A reference clip on the device."""

    speaker: Tensor  # [E] in the run dtype
    codes: Tensor  # [R, Q] int64


class Qwen3TTS:
    """One loaded checkpoint, or one of random weights."""

    def __init__(
        self,
        card: ModelCard,
        weights: TalkerWeights,
        tokenizer: TextTokenizer,
        decoder: CodecDecoder,
        encoders: Encoders | None,
    ) -> None:
        config: Qwen3TTSConfig = card.config
        t = config.talker
        self.card, self.config, self.weights = card, config, weights
        self.device = weights.head.device
        self.talker = make_talker(t.stack, weights.talker, t.max_positions, self.device)
        self.predictor = Predictor(config.predictor.stack, weights, t.num_codebooks)
        self.prompts = PromptBuilder(config, tokenizer)
        self._decoder, self._encoders = decoder, encoders
        self._clips = ClipReader(config.codec.input_sample_rate_hz)
        self._references: OrderedDict[str, EncodedReference] = OrderedDict()
        banned = torch.zeros(t.vocab_size, dtype=torch.bool, device=self.device)
        banned[t.vocab_size - NUM_CONTROL_IDS :] = True
        banned[t.codec_eos_id] = False
        self._rules = Rules(banned, t.codec_eos_id, NEVER if config.random else MIN_FRAMES)
        element = weights.head.element_size()
        kv_values = 2 * t.stack.num_layers * t.stack.num_kv_heads * t.stack.head_dim
        self.spec = EngineSpec(
            frame_width=t.num_codebooks,
            frame_dtype=torch.int16,
            frame_rate_hz=config.codec.frame_rate_hz,
            sample_rate_hz=config.codec.output_sample_rate_hz,
            samples_per_frame=config.codec.decoder.samples_per_frame,
            max_frames=config.generation.max_new_tokens - 1,
            max_positions=t.max_positions,
            codec_window_frames=CODEC_WINDOW_FRAMES,
            codec_context_frames=CODEC_CONTEXT_FRAMES,
            kv_bytes_per_position=kv_values * element,
            ends_itself=not config.random,
        )

    # ------------------------------------------------------------------ prompts, on the host

    def prepare(self, segment: Segment) -> PreparedPrompt | Failure:
        """Tokenise, and read the reference clip. Host only."""
        u = segment.utterance
        reference = None
        if u.ref_audio is not None:
            try:
                key, samples = self._clips.read(u.ref_audio)
            except Exception as e:  # the file may have gone since the row was checked
                message = f"{u.source}:{u.line}: {u.ref_audio}: cannot be read: {e}"
                return Failure(u.source, u.line, u.id, "prepare", "ref_unreadable", message)
            reference = Reference(key, samples, context_frames(self.config, len(samples)))
        spoken = Spoken(
            text=segment.text,
            language=language_name(self.config, u.language),
            speaker=u.voice.lower() if u.voice is not None else None,
            instruct=u.instruct,
            reference=reference,
            reference_text=u.ref_text,
            streaming_text=self.config.kind == "base",  # the official default of each kind
        )
        return self.prompt(segment, spoken)

    def prompt(self, segment: Segment, spoken: Spoken) -> PreparedPrompt:
        """The prompt of an explicit description."""
        layout = self.prompts.build(spoken)
        return PreparedPrompt(
            segment=segment,
            num_positions=len(layout.text_ids),
            draw=self._draw_settings(segment),
            payload=layout,
            num_following=len(layout.trailing_ids),
        )

    def _draw_settings(self, segment: Segment) -> DrawSettings:
        g, own = self.config.generation, segment.utterance.sampling

        def both(value: N | None, default: tuple[N, N]) -> tuple[N, N]:
            return default if value is None else (value, value)

        temperature, top_k = both(own.temperature, g.temperature), both(own.top_k, g.top_k)
        penalty = own.repetition_penalty
        penalty = g.repetition_penalty if penalty is None else penalty
        num_ids = max(self.config.talker.vocab_size, self.config.predictor.vocab_size)
        return DrawSettings(
            temperature=(_warm(temperature[0]), _warm(temperature[1])),
            top_k=(min(top_k[0], num_ids), min(top_k[1], num_ids)),
            top_p=both(own.top_p, g.top_p),
            repetition_penalty=max(penalty, LEAST_PENALTY),
        )

    # ------------------------------------------------------------------ the engine's methods

    def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> Qwen3State:
        """Allocate all that the steps write to."""
        t, w = self.config.talker, self.weights
        pages_per_slot = -(-max_positions // PAGE_SIZE)

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        return Qwen3State(
            kv=self.talker.new_kv(num_pages, self.device, w.head.dtype),
            cache=PredictorCache(self.predictor.config, num_slots, t.num_codebooks, w.head),
            block_table=zeros(num_slots + 1, pages_per_slot, dtype=torch.int32),
            position=zeros(num_slots, dtype=torch.int64),
            x=zeros(num_slots, t.stack.hidden_size, dtype=w.head.dtype),
            seen=zeros(num_slots, t.vocab_size, dtype=torch.bool),
            trailing=zeros(num_slots, max_positions, dtype=torch.int32),
            trailing_length=zeros(num_slots, dtype=torch.int64),
            staged=Staged(self.device, x=zeros(0, t.stack.hidden_size, dtype=w.head.dtype)),
        )

    def stage(self, state: Qwen3State, seats: list[Seat]) -> int:
        """Write the packed prompts' inputs but for each one's last, which its first step takes."""
        layouts: list[PromptLayout] = [s.prompt.payload for s in seats]
        lengths = [len(x.text_ids) for x in layouts]
        packing = pack_seats(seats, lengths, state.block_table.shape[1])
        trailing_width = max(1, *(len(x.trailing_ids) for x in layouts))
        trailing = np.zeros((len(seats), trailing_width), np.int32)
        for i, layout in enumerate(layouts):
            trailing[i, : len(layout.trailing_ids)] = layout.trailing_ids

        x = self.embed(layouts)
        at = self._to_device(packing.slots)
        state.x[at] = x[self._to_device(packing.last)]
        state.position[at] = self._to_device(packing.last_position)
        state.block_table[at] = self._to_device(packing.table)
        state.trailing[at, :trailing_width] = self._to_device(trailing)
        counts = np.array([len(layout.trailing_ids) for layout in layouts])
        state.trailing_length[at] = self._to_device(counts)
        state.seen.index_fill_(0, at, False)

        rest = x[self._to_device(packing.rest)]
        state.staged.fill(packing, spare_slot=len(state.block_table) - 1, x=rest)
        return packing.num_tokens

    def prefill(self, state: Qwen3State, num_tokens: int) -> None:
        """Run the staged tokens into the KV."""
        staged = state.staged.first(num_tokens)
        table = state.block_table[staged["slot"]]
        self.talker.prefill(staged["x"], staged["position"], state.kv, table)

    def move(self, state: Qwen3State, old: Tensor, new: Tensor) -> None:
        """Take a row's state along; the predictor's cache holds nothing between frames."""
        for tensor in (
            state.block_table,
            state.position,
            state.x,
            state.seen,
            state.trailing,
            state.trailing_length,
        ):
            tensor[new] = tensor[old]

    def step(self, state: Qwen3State, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        """One frame in each of the first slots."""
        w, end, num_slots = self.weights, self.config.talker.codec_eos_id, len(rows.age)
        table, x = state.block_table[:num_slots], state.x[:num_slots]
        table.mul_(rows.active[:, None])  # a row that ended no longer owns its pages
        position = torch.where(rows.active, state.position[:num_slots], 0)
        hidden = self.talker.step(x, position, state.kv, table, bound)
        logits = torch.nn.functional.linear(hidden, w.head)
        first = draw(logits, 0, self._rules, state.seen[:num_slots])
        ended = first == end
        first = torch.where(ended, 0, first)
        codes = torch.stack([first, *self.predictor.frame(hidden, first, state.cache, draw)], dim=1)
        pad_id = self.config.tts_pad_id
        lengths = state.trailing_length[:num_slots]
        text = RunningText(state.trailing[:num_slots], rows.age, lengths, pad_id, w.text)
        embed_sum(codes, w.codes, w.code_offsets, text, out=x)
        state.position[:num_slots].add_(rows.active)
        return Frame(codes, ended)

    def context_frames(self, prompt: PreparedPrompt) -> Tensor | None:
        """The reference's codes, which the codec decodes before the row's own."""
        layout: PromptLayout = prompt.payload
        if not layout.in_context or layout.reference is None:
            return None
        return self._encode([layout.reference])[0].codes

    def decode_audio(self, frames: Tensor) -> Tensor:
        """[B, F, Q] codes to [B, N] f32 samples, one pass."""
        return self._decoder.decode(frames)

    def trial_calls(self) -> list[Callable[[], object]]:
        """Calls of the codec's kernels; one of everything else comes with a frame."""
        return [] if self._decoder.fused is None else self._decoder.fused.trial_calls()

    # ------------------------------------------------------------------ embeddings

    def embed_codes(self, codes: Tensor) -> Tensor:
        """[F, Q] codes to the sums of their talker embeddings [F, E], rounded once."""
        w = self.weights
        return embed_sum(codes, w.codes, w.code_offsets)

    def embed(self, layouts: list[PromptLayout]) -> Tensor:
        """Inputs of packed prompts [T, E]: text plus code vector at every position."""
        w = self.weights
        text = self._to_device(np.concatenate([x.text_ids for x in layouts]))
        code = self._to_device(np.concatenate([x.code_ids for x in layouts]))
        x = w.text[text]
        codes = torch.where((code >= 0)[:, None], w.codes[code.clamp(min=0)], 0)
        encodings = iter(self._encode([x.reference for x in layouts if x.reference is not None]))
        start = 0
        for layout in layouts:
            if layout.reference is not None:
                encoded = next(encodings)
                codes[start + layout.speaker_at] = encoded.speaker
                if layout.reference_at != NONE:
                    at = start + layout.reference_at
                    codes[at : at + layout.reference.num_frames] = self.embed_codes(encoded.codes)
            start += len(layout.text_ids)
        return x + codes

    def _encode(self, references: list[Reference]) -> list[EncodedReference]:
        """Speaker vectors and codes of clips, made once per distinct content, together."""
        missing = {r.key: r for r in references if r.key not in self._references}
        if missing:
            assert self._encoders is not None  # Base has them
            clips = [self._to_device(r.samples) for r in missing.values()]
            vectors = self._encoders.embed(clips).to(self.weights.head.dtype)
            codes = self._encoders.encode(clips)
            for key, vector, code in zip(missing, vectors, codes, strict=True):
                self._references[key] = EncodedReference(vector, code)
        found = []
        for r in references:
            self._references.move_to_end(r.key)
            found.append(self._references[r.key])
        while len(self._references) > KEPT_REFERENCES:
            self._references.popitem(last=False)
        return found

    def _to_device(self, values: np.ndarray) -> Tensor:
        return to_device(values, self.device)


def _warm(temperature: float) -> float:
    return max(temperature, LEAST_TEMPERATURE) if temperature > 0 else 0.0


def load(card: ModelCard, device: torch.device, dtype: torch.dtype) -> Qwen3TTS:
    """The model of a card, its weights on the device.

    Raises:
        ModelError: tensors missing, unknown, misshapen or unreadable.
    """
    if card.config.random:
        return _load_random(card, device, dtype)
    config: Qwen3TTSConfig = card.config
    assert card.path is not None
    folder = Path(card.path)
    tokenizer = BPETokenizer(folder)
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")) or [folder / "model.safetensors"]:
        tensors |= read_safetensors(file)
    own = {k: v for k, v in tensors.items() if not k.startswith(SPEAKER_PREFIX)}
    check_tensors(own, talker_specs(config), str(folder))
    codec_file = folder / "speech_tokenizer" / "model.safetensors"
    decoder, encoder = load_codec_weights(codec_file, config.codec)
    encoders = None
    if config.speaker is not None:
        speaker = select_speaker_weights(tensors, config.speaker, str(folder))
        encoders = make_encoders(config, speaker, encoder, device)
    return Qwen3TTS(
        card,
        pack_talker(own, config, device, dtype),
        tokenizer,
        CodecDecoder(config.codec.decoder, decoder, device, dtype),
        encoders,
    )


def _load_random(card: ModelCard, device: torch.device, dtype: torch.dtype) -> Qwen3TTS:
    config: Qwen3TTSConfig = card.config
    g = torch.Generator(device=device).manual_seed(0)
    encoders = random_encoders(config, g, device) if config.speaker is not None else None
    decoder = random_decoder_weights(config.codec.decoder, g, device)
    return Qwen3TTS(
        card,
        pack_talker(random_weights(talker_specs(config), g, device), config, device, dtype),
        StandInTokenizer(config.im_start_id),
        CodecDecoder(config.codec.decoder, decoder, device, dtype),
        encoders,
    )
