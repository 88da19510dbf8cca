"""The family's `CodecLM`: wires tokenizer, prompts, networks and AudioVAE.

A step begins with the LMs on the input that prefill or the step before left behind, so the last
prompt position is run by the first step and prefill makes no output but KV. Its frame is a patch
of latents, kept also where the stop head ends the row with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ttsbatch.models.clips import ClipReader
from ttsbatch.models.layers import PagedKV, to_device
from ttsbatch.models.packing import Staged, pack_seats
from ttsbatch.models.protocol import (
    NO_DRAWS,
    PAGE_SIZE,
    Draw,
    EngineSpec,
    Frame,
    PreparedPrompt,
    Seat,
    SlotTensors,
)
from ttsbatch.models.text_tokenizer import StandInTokenizer, TextTokenizer
from ttsbatch.models.voxcpm2.card import MAX_PATCHES
from ttsbatch.models.voxcpm2.config import VoxCPM2Config
from ttsbatch.models.voxcpm2.network import Network
from ttsbatch.models.voxcpm2.prompt import Clip, PromptBuilder, PromptLayout, Spoken
from ttsbatch.models.voxcpm2.references import ClipEncoder
from ttsbatch.models.voxcpm2.specs import decoder_specs, encoder_specs, main_specs
from ttsbatch.models.voxcpm2.tokenizer import CharTokenizer
from ttsbatch.models.voxcpm2.vae import CONTEXT_LATENTS, AudioVAE, vae_dtype
from ttsbatch.models.voxcpm2.weights import pack, read_main, read_vae
from ttsbatch.models.weights import random_weights
from ttsbatch.types import FEWEST_STEPS, Demand, Failure, ModelCard, Segment

GUIDANCE, NUM_STEPS = 2.0, 10  # official `cfg_value` and `inference_timesteps`
MIN_AGE = 3  # frames before the one that may end the row: official `min_len` of 2, which `>` tests
WINDOW_PATCHES = 40  # new patches per VAE pass of a long row: 6.4 s


@dataclass(slots=True)
class VoxCPM2State:
    """What steps write to; S slots and a spare one for padding, P pages per slot."""

    kv: PagedKV
    residual_kv: PagedKV  # the same pages: both LMs have as many positions
    block_table: Tensor  # [S + 1, P] int32; zeros for slots without a row and for the spare
    position: Tensor  # [S] int64 where the next input is written
    x: Tensor  # [S, E] the next input of the LM
    is_audio: Tensor  # [S] bool: `x` is a patch, not text
    cond: Tensor  # [S, P, C] the patch before the next
    guidance: Tensor  # [S] f32
    num_steps: Tensor  # [S] int64
    staged: Staged


class VoxCPM2:
    """One loaded checkpoint, or one of random weights."""

    def __init__(
        self,
        card: ModelCard,
        network: Network,
        vae: AudioVAE,
        tokenizer: TextTokenizer,
        most_steps: int = NUM_STEPS,
    ) -> None:
        """Make the solver's tables.

        Args:
            card: of the checkpoint.
            network: on the device.
            vae: on the device.
            tokenizer: of the checkpoint.
            most_steps: that any row may take; every patch has the evaluations of so many.
        """
        config: VoxCPM2Config = card.config
        self.card, self.config, self.network = card, config, network
        self.device, self.dtype = network.weights.embed.device, network.weights.embed.dtype
        self.prompts = PromptBuilder(config, tokenizer)
        self.most_steps = most_steps
        self._schedule = network.dit.schedule(most_steps)
        self._vae = vae
        self._encode = ClipEncoder(config, network, vae)
        self._clips = ClipReader(config.vae.input_sample_rate_hz)
        stacks = config.lm, config.residual
        kv_values = sum(2 * s.num_layers * s.num_kv_heads * s.head_dim for s in stacks)
        self.spec = EngineSpec(
            frame_width=config.patch_size * config.vae.latent_dim,
            frame_dtype=self.dtype,
            frame_rate_hz=config.patch_rate_hz,
            sample_rate_hz=config.vae.output_sample_rate_hz,
            samples_per_frame=config.patch_samples_out,
            max_frames=MAX_PATCHES,
            max_positions=config.max_positions,
            codec_window_frames=WINDOW_PATCHES,
            codec_context_frames=-(-CONTEXT_LATENTS // config.patch_size),
            kv_bytes_per_position=kv_values * network.weights.embed.element_size(),
            ends_itself=not config.random,
            keeps_last=True,
            frames_per_round=1,
        )

    # ------------------------------------------------------------------ prompts, on the host

    def prepare(self, segment: Segment) -> PreparedPrompt | Failure:
        """Tokenise, and read the reference clip. Host only.

        A clip with its text is continued, one without lends its voice.
        """
        u = segment.utterance
        reference = continued = None
        if u.ref_audio is not None:
            try:
                key, samples = self._clips.read(u.ref_audio)
            except Exception as e:  # the file may have gone since the row was checked
                message = f"{u.source}:{u.line}: {u.ref_audio}: cannot be read: {e}"
                return Failure(u.source, u.line, u.id, "prepare", "ref_unreadable", message)
            if u.ref_text is None:
                reference = Clip(key, samples, "right")
            else:
                continued = Clip(key, samples, "left")
        problem = self._problem(segment)
        if problem is not None:
            message = f"{u.source}:{u.line}: {problem}"
            return Failure(u.source, u.line, u.id, "prepare", "unsupported_option", message)
        spoken = Spoken(segment.text, u.instruct, reference, continued, u.ref_text or "")
        return self.prompt(segment, spoken)

    def _problem(self, segment: Segment) -> str | None:
        u = segment.utterance
        if u.instruct and u.ref_text is not None:
            return (
                '"instruct" is given beside "ref_text"; a clip that is continued keeps its own '
                "style: expected one of them"
            )
        steps = u.sampling.steps
        steps = NUM_STEPS if steps is None else steps
        if not FEWEST_STEPS <= steps <= self.most_steps:
            return (
                f"it takes {steps} solver steps; the model was loaded for {FEWEST_STEPS} to "
                f"{self.most_steps}"
            )
        return None

    def prompt(self, segment: Segment, spoken: Spoken) -> PreparedPrompt:
        """The prompt of an explicit description."""
        own = segment.utterance.sampling
        layout = self.prompts.build(
            spoken,
            GUIDANCE if own.guidance is None else own.guidance,
            NUM_STEPS if own.steps is None else own.steps,
        )
        return PreparedPrompt(
            segment=segment,
            num_positions=len(layout.token_ids),
            draw=NO_DRAWS,
            payload=layout,
        )

    # ------------------------------------------------------------------ the engine's methods

    def new_state(self, num_slots: int, num_pages: int, max_positions: int) -> VoxCPM2State:
        """Allocate all that the steps write to."""
        c, width = self.config, self.config.lm.hidden_size

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        return VoxCPM2State(
            kv=self.network.lm.new_kv(num_pages, self.device, self.dtype),
            residual_kv=self.network.residual.new_kv(num_pages, self.device, self.dtype),
            block_table=zeros(num_slots + 1, -(-max_positions // PAGE_SIZE), dtype=torch.int32),
            position=zeros(num_slots, dtype=torch.int64),
            x=zeros(num_slots, width, dtype=self.dtype),
            is_audio=zeros(num_slots, dtype=torch.bool),
            cond=zeros(num_slots, c.patch_size, c.vae.latent_dim, dtype=self.dtype),
            guidance=zeros(num_slots, dtype=torch.float32),
            num_steps=zeros(num_slots, dtype=torch.int64),
            staged=Staged(
                self.device,
                x=zeros(0, width, dtype=self.dtype),
                is_audio=zeros(0, dtype=torch.bool),
            ),
        )

    def stage(self, state: VoxCPM2State, seats: list[Seat]) -> int:
        """Write the packed prompts' inputs but for each one's last, which its first step takes."""
        layouts: list[PromptLayout] = [s.prompt.payload for s in seats]
        lengths = [len(x.token_ids) for x in layouts]
        packing = pack_seats(seats, lengths, state.block_table.shape[1])

        x, cond = self.embed(layouts)
        is_audio = self._to_device(np.concatenate([x.is_audio for x in layouts]))
        at, ends = self._to_device(packing.slots), self._to_device(packing.last)
        state.x[at], state.is_audio[at], state.cond[at] = x[ends], is_audio[ends], cond
        state.position[at] = self._to_device(packing.last_position)
        state.block_table[at] = self._to_device(packing.table)
        guidance = np.array([x.guidance for x in layouts], np.float32)
        state.guidance[at] = self._to_device(guidance)
        state.num_steps[at] = self._to_device(np.array([x.num_steps for x in layouts]))

        rest = self._to_device(packing.rest)
        spare = len(state.block_table) - 1
        state.staged.fill(packing, spare, x=x[rest], is_audio=is_audio[rest])
        return packing.num_tokens

    def prefill(self, state: VoxCPM2State, num_tokens: int) -> None:
        """Run the staged tokens into the KV of both LMs."""
        staged, n = state.staged.first(num_tokens), self.network
        x, is_audio, position = staged["x"], staged["is_audio"], staged["position"]
        table = state.block_table[staged["slot"]]
        hidden = n.lm_output(n.lm.prefill(x, position, state.kv, table), is_audio)
        after = n.residual_input(hidden, x, is_audio)
        n.residual.prefill(after, position, state.residual_kv, table)

    def move(self, state: VoxCPM2State, old: Tensor, new: Tensor) -> None:
        """Take a row's state along."""
        for tensor in (
            state.block_table,
            state.position,
            state.x,
            state.is_audio,
            state.cond,
            state.guidance,
            state.num_steps,
        ):
            tensor[new] = tensor[old]

    def step(self, state: VoxCPM2State, rows: SlotTensors, draw: Draw, bound: int) -> Frame:
        """One patch in each of the first slots."""
        n, num_slots = self.network, len(rows.age)
        table, x = state.block_table[:num_slots], state.x[:num_slots]
        is_audio, cond = state.is_audio[:num_slots], state.cond[:num_slots]
        table.mul_(rows.active[:, None])  # a row that ended no longer owns its pages
        position = torch.where(rows.active, state.position[:num_slots], 0)
        hidden = n.lm_output(n.lm.step(x, position, state.kv, table, bound), is_audio)
        after = n.residual_input(hidden, x, is_audio)
        residual = n.residual.step(after, position, state.residual_kv, table, bound)
        patch = n.dit.solve(
            draw.normal(self.spec.frame_width).to(self.dtype).view_as(cond),
            n.mu(hidden, residual),
            cond,
            state.guidance[:num_slots],
            state.num_steps[:num_slots],
            self._schedule,
        )
        x.copy_(n.embed_patches(patch))
        cond.copy_(patch)
        is_audio.fill_(True)
        state.position[:num_slots].add_(rows.active)
        go_on, stop = n.stop_logits(hidden).unbind(1)
        ended = (stop > go_on) & (rows.age >= MIN_AGE)
        if self.config.random:
            ended = torch.zeros_like(ended)
        return Frame(patch.flatten(1), ended)

    def context_frames(self, prompt: PreparedPrompt) -> Tensor | None:
        """The last patches of a continued clip, which the VAE decodes before the row's own."""
        layout: PromptLayout = prompt.payload
        if layout.continued is None:
            return None
        (encoded,) = self._encode([layout.continued.clip])
        return encoded.patches[-layout.context_patches :].flatten(1)

    def decode_audio(self, frames: Tensor) -> Tensor:
        """[B, F, W] patches to [B, N] f32 samples, one pass."""
        latents = frames.unflatten(2, (self.config.patch_size, -1)).flatten(1, 2)
        with torch.inference_mode():
            return self._vae.decode(latents)

    def trial_calls(self) -> list[Callable[[], object]]:
        """What the AudioVAE launches; one of everything else comes with a frame."""
        return self._vae.trial_calls()

    # ------------------------------------------------------------------ embeddings

    def embed(self, layouts: list[PromptLayout]) -> tuple[Tensor, Tensor]:
        """LM inputs of packed prompts [T, E], and the patch before each one's own [B, P, C]."""
        c = self.config
        ids = np.concatenate([x.token_ids for x in layouts])
        x = self.network.weights.embed[self._to_device(ids)]
        cond = torch.zeros(
            len(layouts), c.patch_size, c.vae.latent_dim, dtype=self.dtype, device=self.device
        )
        encoded = iter(self._encode([p.clip for layout in layouts for p in layout.clips]))
        start = 0
        for i, layout in enumerate(layouts):
            for placed in layout.clips:
                clip, at = next(encoded), start + placed.at
                x[at : at + placed.num_patches] = clip.embedded
                if placed is layout.continued:
                    cond[i] = clip.patches[-1]
            start += len(layout.token_ids)
        return x, cond

    def _to_device(self, values: np.ndarray) -> Tensor:
        return to_device(values, self.device)


def most_steps(demand: Demand) -> int:
    """The solver steps that a patch needs evaluations for."""
    return max((NUM_STEPS if n is None else n for n in demand.steps), default=NUM_STEPS)


def load(
    card: ModelCard, device: torch.device, dtype: torch.dtype, demand: Demand | None = None
) -> VoxCPM2:
    """The model of a card, its weights on the device; the AudioVAE in `vae_dtype`.

    Args:
        card: of the checkpoint.
        device: for the weights.
        dtype: of all but the AudioVAE.
        demand: of the rows to come: no row may ask for more solver steps; None: they ask none.

    Raises:
        ModelError: tensors missing, unknown, misshapen or unreadable.
    """
    config: VoxCPM2Config = card.config
    with torch.inference_mode():
        if config.random:
            g = torch.Generator(device=device).manual_seed(0)
            main = random_weights(main_specs(config), g, device)
            vae_specs = encoder_specs(config.vae) | decoder_specs(config.vae)
            vae = random_weights(vae_specs, g, device)
            tokenizer: TextTokenizer = StandInTokenizer(config.vocab_size)
        else:
            assert card.path is not None
            folder = Path(card.path)
            tokenizer = CharTokenizer(folder, config.vocab_size)
            main, vae = read_main(folder, config), read_vae(folder, config.vae)
        network = Network(config, pack(main, config, device, dtype))
        decoder = AudioVAE(config.vae, vae, device, vae_dtype(device, dtype))
        return VoxCPM2(card, network, decoder, tokenizer, most_steps(demand or Demand()))
