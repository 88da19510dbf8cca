"""The speaker encoder: reference audio to one voice vector (log-mel, then ECAPA-TDNN).

The model knows no lengths: clips that share a padded batch are mirrored, averaged and weighted each
within its own.

Source: speaker encoder of the official package qwen-tts 0.1.1; Desplanques et al., "ECAPA-TDNN",
2020. Mel bands: Slaney's Auditory Toolbox (1998), as in librosa's defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ttsbatch.models.layers import full_float32, to_device
from ttsbatch.models.qwen3_tts.clip_batches import Lengths, clip_batches
from ttsbatch.models.qwen3_tts.codec_config import FFT_SAMPLES, HOP_SAMPLES, SpeakerConfig
from ttsbatch.models.qwen3_tts.codec_layers import Take, taker

EDGE_SAMPLES = (FFT_SAMPLES - HOP_SAMPLES) // 2  # reflected on both sides
FFT_FRAMES = 1024
"""Of every transform, the last ones empty: torch keeps a cuFFT plan, with device memory of its own,
for each number of frames that it has seen, up to 4,096 of them, and so it sees one."""

PAD_FRAMES = 94  # 1 s; see `clip_batches.padded_batches`
BATCH_FRAMES = 96 * PAD_FRAMES


def min_samples(config: SpeakerConfig) -> int:
    """The shortest clip whose mel frames every reflecting convolution can pad."""
    reach = max(
        math.ceil(d * (k - 1) / 2)
        for k, d in zip(config.kernel_sizes, config.dilations, strict=True)
    )
    return max((reach + 1) * HOP_SAMPLES, EDGE_SAMPLES + 1)


def slaney_mel_filters(sample_rate_hz: int, fft_samples: int, num_bands: int) -> Tensor:
    """Triangular bands from 0 to half the sample rate, each of unit area in Hz.

    Slaney's scale is linear (200 / 3 Hz per mel) below 1 kHz and logarithmic (27 mels per factor of
    6.4) above.

    Returns:
        [num_bands, fft_samples / 2 + 1] f32.
    """
    top_hz, knee_hz, hz_per_mel = sample_rate_hz / 2, 1000.0, 200.0 / 3
    knee_mel, step = knee_hz / hz_per_mel, math.log(6.4) / 27
    top_mel = top_hz / hz_per_mel
    if top_hz > knee_hz:
        top_mel = knee_mel + math.log(top_hz / knee_hz) / step
    mels = torch.linspace(0, top_mel, num_bands + 2, dtype=torch.float64)
    above = knee_hz * torch.exp(step * (mels - knee_mel))
    edges = torch.where(mels < knee_mel, mels * hz_per_mel, above)  # [bands + 2] Hz
    bins = torch.linspace(0, top_hz, fft_samples // 2 + 1, dtype=torch.float64)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * 2 / (right - left)).float()


class SpeakerEncoder:
    """Clips in, voice vectors out, in float32. Filter bank and window stay on the device."""

    def __init__(
        self, config: SpeakerConfig, weights: Mapping[str, Tensor], device: torch.device | str
    ) -> None:
        """Prepare the weights, named as in `codec_specs.speaker_specs`, on any device."""
        device = torch.device(device)
        self.config, self.device = config, device
        c = config
        with torch.inference_mode():
            take = taker(weights, device, torch.float32)
            self.window = torch.hann_window(FFT_SAMPLES, device=device)
            self.filters = slaney_mel_filters(c.sample_rate_hz, FFT_SAMPLES, c.mel_dim).to(device)
            self.first = ReflectConv(take, "blocks.0.conv", c.dilations[0])
            self.blocks = [
                Res2NetBlock(take, f"blocks.{i}.", c.dilations[i], c.res2net_scale)
                for i in range(1, len(c.channels) - 1)
            ]
            self.merge = ReflectConv(take, "mfa.conv", c.dilations[-1])
            self.pooling = AttentivePooling(take, "asp.")
            self.fc = ReflectConv(take, "fc")

    @torch.inference_mode()
    def mel(self, samples: Tensor) -> Tensor:
        """Log-mel spectrograms.

        Args:
            samples: [B, N] f32 at `sample_rate_hz`, on the device; N >= `min_samples(config)`.

        Returns:
            [B, N // 256, mel_dim] f32.
        """
        return self._mel_of_frames(self._frames(samples))

    @torch.inference_mode()
    def embed(self, mels: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Voice vectors.

        Args:
            mels: [B, F, mel_dim] f32 log-mels, on the device.
            lengths: [B] int64 of the clips' own frames, on the device; None: F each.

        Returns:
            [B, enc_dim] f32.
        """
        own = None if lengths is None else Lengths(lengths, mels.shape[1])
        with full_float32(self.device):
            x = F.relu(self.first(mels.transpose(1, 2), own))  # [B, C, F]
            outputs = []
            for block in self.blocks:
                x = block(x, own)
                outputs.append(x)
            x = F.relu(self.merge(torch.cat(outputs, dim=1), own))
            return self.fc(self.pooling(x, own))[..., 0]

    @torch.inference_mode()
    def embed_clips(self, clips: Sequence[Tensor], pad: bool | None = None) -> Tensor:
        """Embed clips of any lengths, each as if alone.

        Args:
            clips: [N_i] f32 each, on any device.
            pad: shorter clips to the length of others, so that they share a pass; None: on a GPU.

        Returns:
            [len(clips), enc_dim] f32, in order.
        """
        out = torch.empty(len(clips), self.config.enc_dim, device=self.device)
        pad = self.device.type == "cuda" if pad is None else pad
        lengths = [len(clip) // HOP_SAMPLES for clip in clips]
        for batch in clip_batches(lengths, PAD_FRAMES, BATCH_FRAMES, pad):
            mels = torch.zeros(batch.size, batch.length, self.config.mel_dim, device=self.device)
            for row, mel in enumerate(self._mels_of([clips[i] for i in batch.members])):
                mels[row, : len(mel)] = mel
            own = to_device(batch.lengths(lengths), self.device) if pad else None
            for i, vector in zip(batch.members, self.embed(mels, own), strict=False):
                out[i] = vector
        return out

    def _mels_of(self, clips: Sequence[Tensor]) -> Sequence[Tensor]:
        """[N_i] samples each -> [F_i, mel_dim] each."""
        frames = [self._frames(x.to(self.device, torch.float32)[None])[0] for x in clips]
        return torch.split(self._mel_of_frames(torch.cat(frames)), [len(x) for x in frames])

    def _frames(self, samples: Tensor) -> Tensor:
        """[B, N] -> [B, F, FFT_SAMPLES] overlapping views."""
        padded = F.pad(samples, (EDGE_SAMPLES, EDGE_SAMPLES), mode="reflect")
        return padded.unfold(-1, FFT_SAMPLES, HOP_SAMPLES)

    def _mel_of_frames(self, frames: Tensor) -> Tensor:
        """[..., FFT_SAMPLES] -> [..., mel_dim]."""
        with full_float32(self.device):
            spectra = torch.view_as_real(_spectra(frames * self.window))
            magnitude = (spectra.square().sum(-1) + 1e-9).sqrt()
            return F.linear(magnitude, self.filters).clamp(min=1e-5).log()


def _spectra(frames: Tensor) -> Tensor:
    """[..., FFT_SAMPLES] f32 -> [..., FFT_SAMPLES / 2 + 1] complex64."""
    flat = frames.flatten(0, -2)
    padded = F.pad(flat, (0, 0, 0, -len(flat) % FFT_FRAMES))
    spectra = torch.cat([torch.fft.rfft(some) for some in padded.split(FFT_FRAMES)])
    return spectra[: len(flat)].view(*frames.shape[:-1], spectra.shape[-1])


class ReflectConv:
    """Length-preserving convolution with reflected edges: [B, C, F] -> [B, C', F]."""

    def __init__(self, take: Take, name: str, dilation: int = 1) -> None:
        self.weight, self.bias = take(f"{name}.weight"), take(f"{name}.bias")
        self.dilation = dilation
        total = dilation * (self.weight.shape[-1] - 1)
        self.padding = total // 2, total - total // 2

    def __call__(self, x: Tensor, own: Lengths | None = None) -> Tensor:
        if any(self.padding):
            if own is None:
                x = F.pad(x, self.padding, mode="reflect")
            else:
                x = own.reflected(x, *self.padding)
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class Res2NetBlock:
    """Squeeze-excitation Res2Net block: [B, C, F] -> [B, C, F]."""

    def __init__(self, take: Take, name: str, dilation: int, scale: int) -> None:
        self.tdnn1 = ReflectConv(take, f"{name}tdnn1.conv")
        self.slices = [
            ReflectConv(take, f"{name}res2net_block.blocks.{j}.conv", dilation)
            for j in range(scale - 1)
        ]
        self.tdnn2 = ReflectConv(take, f"{name}tdnn2.conv")
        self.squeeze = ReflectConv(take, f"{name}se_block.conv1")
        self.excite = ReflectConv(take, f"{name}se_block.conv2")
        self.scale = scale

    def __call__(self, x: Tensor, own: Lengths | None) -> Tensor:
        passed, *parts = F.relu(self.tdnn1(x, own)).chunk(self.scale, dim=1)
        outputs = [passed]
        for conv, part in zip(self.slices, parts, strict=True):
            # The first slice is passed on but not carried into the second.
            carried = part if len(outputs) == 1 else part + outputs[-1]
            outputs.append(F.relu(conv(carried, own)))
        y = F.relu(self.tdnn2(torch.cat(outputs, dim=1), own))
        if own is None:
            mean = y.mean(dim=2, keepdim=True)
        else:
            mean = own.silenced(y).sum(dim=2, keepdim=True) / own.own[:, None, None]
        gate = self.excite(F.relu(self.squeeze(mean)))
        return x + y * gate.sigmoid()


class AttentivePooling:
    """Weighted mean and deviation over time: [B, C, F] -> [B, 2C, 1]."""

    def __init__(self, take: Take, name: str) -> None:
        self.tdnn = ReflectConv(take, f"{name}tdnn.conv")
        self.attend = ReflectConv(take, f"{name}conv")

    def __call__(self, x: Tensor, own: Lengths | None) -> Tensor:
        if own is None:
            even = torch.full_like(x[:, :1], 1 / x.shape[2])
        else:
            even = own.mask() / own.own[:, None, None]
        context = torch.cat([x, *(s.expand_as(x) for s in _mean_std(x, even))], dim=1)
        scores = self.attend(torch.tanh(F.relu(self.tdnn(context, own))))
        if own is not None:
            scores = scores.masked_fill(~own.mask(), -torch.inf)
        return torch.cat(_mean_std(x, scores.softmax(dim=2)), dim=1)


def _mean_std(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """[B, C, 1] each; `weights` sum to 1 over time."""
    mean = (weights * x).sum(dim=2, keepdim=True)
    variance = (weights * (x - mean).square()).sum(dim=2, keepdim=True)
    return mean, variance.clamp(min=1e-12).sqrt()
