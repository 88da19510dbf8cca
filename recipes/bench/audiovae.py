"""VoxCPM2's AudioVAE, plain and fused: speed, closeness to float32, and each launch of a decode.

    python -m recipes.bench.audiovae [--shapes 1x45 16x45 64x45] [--sweep]

Shapes are batch x patches of 0.16 s. The fused lines should be above 6,000 audio seconds a second
from 16 x 45 on, and float16 at least 50 dB from plain float32. Random weights of the published
size, or those of a checkpoint (`--model FOLDER`). On a CPU it shows closeness alone. `--sweep`
tries other tiles on each dense convolution.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.bench.causal_conv import sweep, vae_layers
from ttsbatch.kernels.bench.timing import replay_us
from ttsbatch.models.voxcpm2 import vae_fused
from ttsbatch.models.voxcpm2.config import VoxCPM2Config, read_config
from ttsbatch.models.voxcpm2.official import random_config
from ttsbatch.models.voxcpm2.specs import decoder_specs, encoder_specs
from ttsbatch.models.voxcpm2.vae import AudioVAE
from ttsbatch.models.voxcpm2.weights import read_vae
from ttsbatch.models.weights import random_weights

VARIANTS = (  # the first is what is right
    ("plain fp32", torch.float32, False),
    ("fused fp16", torch.float16, True),
    ("fused bf16", torch.bfloat16, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bench the AudioVAE.")
    parser.add_argument("--model", type=Path, help="checkpoint; random weights without it")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="*", default=["1x45", "4x45", "16x45", "64x45", "80x16"])
    parser.add_argument("--encode", nargs="*", default=["8x40"], help="batch x patches of clips")
    parser.add_argument("--no-plain", action="store_true", help="time the fused chains alone")
    parser.add_argument("--sweep", action="store_true", help="also try tiles of each convolution")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.fp32_precision = "ieee"
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(name, "torch", torch.__version__)
    with torch.inference_mode():
        config, tensors = weights(args.model, device)
        models = {
            name: AudioVAE(config.vae, tensors, device, dtype, fused)
            for name, dtype, fused in VARIANTS[int(args.no_plain) :]
        }
        sizes = [tuple(map(int, shape.split("x"))) for shape in args.shapes]
        for batch, patches in sizes:
            compare(models, "decode", batch, patches, config)
        for batch, patches in [tuple(map(int, shape.split("x"))) for shape in args.encode]:
            compare(models, "encode", batch, patches, config)
        if sizes:
            table(models["fused fp16"], *sizes[-1], config)
        if args.sweep:
            del models
            torch.cuda.empty_cache()
            sweep(list(vae_layers()), *sizes[-1])


def weights(folder: Path | None, device: torch.device) -> tuple[VoxCPM2Config, dict[str, Tensor]]:
    """A checkpoint's AudioVAE, or a random one."""
    if folder is not None:
        config = read_config(folder)
        return config, read_vae(folder, config.vae)
    config = random_config()
    specs = encoder_specs(config.vae) | decoder_specs(config.vae)
    return config, random_weights(specs, torch.Generator(device).manual_seed(0), device)


def inputs(what: str, batch: int, patches: int, config: VoxCPM2Config, device: Any) -> Tensor:
    """Random latents, or noise of the loudness of speech."""
    generator = torch.Generator(device).manual_seed(1)
    shape: tuple[int, ...] = batch, patches * config.patch_samples_in
    if what == "decode":
        shape = batch, patches * config.patch_size, config.vae.latent_dim
    x = torch.randn(shape, generator=generator, device=device)
    return x if what == "decode" else x * 0.1


def compare(
    models: dict[str, AudioVAE], what: str, batch: int, patches: int, config: VoxCPM2Config
) -> None:
    """A line per variant: milliseconds, audio-s/s, SNR against the first."""
    right: Tensor | None = None
    for name, model in models.items():
        x = inputs(what, batch, patches, config, model.device)
        call: Callable[[Tensor], Tensor] = getattr(model, what)
        found = call(x)
        right = found if right is None else right
        noise = (found - right).double().square().mean() / right.double().square().mean()
        us, spread = timed_us(call, x)
        seconds = batch * patches / config.patch_rate_hz
        print(
            f"{what} {batch:3d} x {patches:3d}  {name:<12}"
            f"{us / 1e3:9.2f} ms (+-{spread / 1e3:5.2f})"
            f"{seconds / us * 1e6:9.0f} audio-s/s  SNR {-10 * noise.log10().item():5.1f} dB",
            flush=True,
        )
        del found, x
        if model.device.type == "cuda":
            torch.cuda.empty_cache()


def timed_us(call: Callable[..., Any], *values: Any) -> tuple[float, float]:
    """Median and spread of a call in a graph; of one call on a CPU."""
    if torch.cuda.is_available() and values[0].is_cuda:
        return replay_us(call, [values], 1)
    begin = time.perf_counter()
    call(*values)
    return (time.perf_counter() - begin) * 1e6, 0.0


def table(model: AudioVAE, batch: int, patches: int, config: VoxCPM2Config) -> None:
    """Each launch of a fused decode, on its values, with the bytes that it must move."""
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    names = ("causal_conv", "depthwise_conv", "last_conv")
    plain = {name: getattr(vae_fused, name) for name in names}

    def recorded(operation: Any, *values: Any, **options: Any) -> Any:
        calls.append((operation, values, options))
        return operation(*values, **options)

    for name, operation in plain.items():
        setattr(vae_fused, name, partial(recorded, operation))
    try:
        model.decode(inputs("decode", batch, patches, config, model.device))
    finally:
        for name, operation in plain.items():
            setattr(vae_fused, name, operation)
    print(f"decode {batch} x {patches}, fused fp16 by launch")
    total_us, total_bytes = 0.0, 0
    for operation, values, options in calls:
        # Not in place, or values would grow with each replay.
        if options.get("raw") is not None:
            options = options | {"raw": torch.empty_like(options["raw"])}
        us, _ = timed_us(partial(operation, **options), *values)
        extra = [options[x] for x in ("residual", "raw") if options.get(x) is not None]
        moved = [*values[:2], *extra, operation(*values, **options)]
        size = sum(x.numel() * x.element_size() for x in moved)
        total_us, total_bytes = total_us + us, total_bytes + size
        shape = "x".join(map(str, values[0].shape))
        print(
            f"{us / 1e3:9.3f} ms {size / us / 1e3:7.0f} GB/s  "
            f"{operation.__name__:<15}{shape:<18} * "
            f"{'x'.join(map(str, values[1].shape)):<12}"
            f"{' +1x1' if options.get('pointwise') else ''}",
            flush=True,
        )
    seconds = batch * patches / config.patch_rate_hz
    print(f"{total_us / 1e3:9.3f} ms in all, {total_bytes / seconds / 1e6:.0f} MB per audio second")


if __name__ == "__main__":
    main()
