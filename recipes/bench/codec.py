"""Codec decode on one GPU, plain and fused: speed, closeness to float32, and each convolution.

    python -m recipes.bench.codec [--shapes 64x62 32x125 16x325] [--sweep]

The fused lines should be above 3,000 audio seconds a second and closer to float32 than plain bf16.
Random weights of the published size. `--sweep` tries other tiles on each convolution.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.bench.causal_conv import Layer, flops, layers, sweep
from ttsbatch.kernels.bench.timing import replay_us
from ttsbatch.models.qwen3_tts import codec_vocoder
from ttsbatch.models.qwen3_tts.codec import CodecDecoder
from ttsbatch.models.qwen3_tts.codec_weights import random_decoder_weights
from ttsbatch.models.qwen3_tts.official import random_config

SAMPLES_PER_SECOND = 24_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Bench the codec decoder.")
    parser.add_argument("--shapes", nargs="+", default=["64x62", "32x125", "16x325"])
    parser.add_argument("--sweep", action="store_true", help="also try tiles of each convolution")
    args = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in args.shapes]
    torch.backends.fp32_precision = "ieee"
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    with torch.inference_mode():
        decoders = make_decoders()
        for batch, frames in shapes:
            compare(decoders, batch, frames)
        fused = decoders["fused bf16"]
        del decoders
        table(fused, *shapes[-1])
        if args.sweep:
            del fused
            torch.cuda.empty_cache()
            sweep(tried(), *shapes[-1])


def make_decoders() -> dict[str, CodecDecoder]:
    """Plain and fused decoders with the same weights."""
    config = random_config("qwen3-tts-1.7b-customvoice").codec.decoder
    weights = random_decoder_weights(config, torch.Generator("cuda").manual_seed(0), "cuda")
    half = partial(CodecDecoder, config, weights, "cuda", torch.bfloat16)
    decoders = {
        "plain fp32": CodecDecoder(config, weights, "cuda"),
        "plain bf16": half(fused=False),
        "fused bf16": half(fused=True),
        "fused bf16, fp32 stream": half(fused=True),
    }
    decoders["fused bf16, fp32 stream"].fused = codec_vocoder.FusedVocoder(
        config, weights, torch.device("cuda"), torch.bfloat16, torch.float32
    )
    return decoders


def compare(decoders: dict[str, CodecDecoder], batch: int, frames: int) -> None:
    """A line per decoder: milliseconds in a graph, audio-s/s, SNR against plain float32."""
    generator = torch.Generator("cuda").manual_seed(1)
    codes = torch.randint(0, 2048, (batch, frames, 16), device="cuda", generator=generator)
    right: Tensor | None = None
    for name, decoder in decoders.items():
        wave = decoder.decode(codes)
        right = wave if right is None else right
        noise = (wave - right).double().square().mean() / right.double().square().mean()
        seconds = wave.numel() / SAMPLES_PER_SECOND
        # cuDNN in float32 fills whole seconds: once in a graph is enough.
        us, spread = replay_us(decoder.decode, [(codes,)], 1)
        print(
            f"{batch:3d} x {frames:3d}  {name:<24}{us / 1e3:8.1f} ms (+-{spread / 1e3:4.1f})"
            f"{seconds / us * 1e6:8.0f} audio-s/s  SNR {-10 * noise.log10().item():5.1f} dB",
            flush=True,
        )
        del wave
        torch.cuda.empty_cache()


def table(decoder: CodecDecoder, batch: int, frames: int) -> None:
    """Each launch of the fused chain, and what comes before it, on the values of a decode."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    plain = {name: getattr(codec_vocoder, name) for name in ("causal_conv", "last_conv")}

    def recorded(operation: Any, *inputs: Any, **options: Any) -> Any:
        calls.append((operation, inputs, options))
        return operation(*inputs, **options)

    codes = torch.randint(0, 2048, (batch, frames, 16), device="cuda")
    for name, operation in plain.items():
        setattr(codec_vocoder, name, partial(recorded, operation))
    decoder.decode(codes)
    for name, operation in plain.items():
        setattr(codec_vocoder, name, operation)

    def front(codes: Tensor) -> Tensor:
        x = decoder.transform(decoder.pre_conv(decoder.dequantize(codes)))
        return decoder.upsample(x)

    print(f"{batch} x {frames}, fused bf16 by launch")
    print(f"{replay_us(front, [(codes,)], 2)[0] / 1e3:8.3f} ms  before the vocoder")
    for operation, inputs, options in calls:
        # Not in place, or values would grow with each replay.
        if options.get("raw") is not None:
            options = options | {"raw": torch.empty_like(options["raw"])}
        us, _ = replay_us(partial(operation, **options), [inputs], 3)
        shape = "x".join(map(str, inputs[0].shape))
        line = f"{us / 1e3:8.3f} ms  {shape:<18} * {'x'.join(map(str, inputs[1].shape)):<12}"
        if operation is plain["causal_conv"]:
            work = flops(*inputs[:2], options.get("pointwise"))
            line += f"{work / us / 1e6:6.0f} TFLOP/s"
            line += f"  dilation {options.get('dilation', 1)}"
            line += " +1x1" if options.get("pointwise") else ""
        print(line, flush=True)


def tried() -> list[Layer]:
    """The convolutions of a decode, and those of units both in one launch and in two."""
    found = list(layers())
    for width in (192, 96):
        rows = next(x.rows_per_frame for x in found if x.width == width and x.taps == 7)
        found.append(Layer(width, width, 7, rows, dilation=3))
        found.append(Layer(width, width, 1, rows, residual=True, raw=True))
    return found


if __name__ == "__main__":
    main()
