"""The AudioVAE as chains of fused convolutions against the plain ones and the goldens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.parity.vae_windows import BOUND, in_windows, patches
from tests.parity.voxcpm2 import CPU, FIXTURE, close, config, golden, vae
from ttsbatch.kernels import causal_conv, depthwise_conv, last_conv, launch
from ttsbatch.models.voxcpm2.config import VaeConfig
from ttsbatch.models.voxcpm2.model import WINDOW_PATCHES
from ttsbatch.models.voxcpm2.official import random_config
from ttsbatch.models.voxcpm2.specs import decoder_specs, encoder_specs
from ttsbatch.models.voxcpm2.vae import CONTEXT_LATENTS, AudioVAE, vae_dtype
from ttsbatch.models.voxcpm2.weights import read_vae
from ttsbatch.models.weights import random_weights

in_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def fused() -> AudioVAE:
    return AudioVAE(config().vae, read_vae(FIXTURE, config().vae), CPU, fused=True)


def narrow(width: int) -> VaeConfig:
    """The official geometry but for its width, which the first upsampling halves."""
    return replace(random_config().vae, encoder_dim=width // 16, decoder_dim=width)


def random_vaes(
    c: VaeConfig, device: torch.device, *kinds: tuple[torch.dtype, bool]
) -> list[AudioVAE]:
    """Of the same weights, conditions unlike one and zero."""
    g = torch.Generator().manual_seed(0)
    tensors = random_weights(encoder_specs(c) | decoder_specs(c), g, CPU)
    for name, tensor in tensors.items():
        if "sr_cond" in name or "bias" in name or "alpha" in name:
            tensor += 0.2 * torch.randn(tensor.shape, generator=g)
    return [AudioVAE(c, tensors, device, dtype, fused) for dtype, fused in kinds]


def noise_db(found: Tensor, right: Tensor) -> float:
    return float(10 * ((found - right).square().mean() / right.square().mean()).log10())


def test_fused_samples_equal_the_goldens(fused: AudioVAE) -> None:
    latents = golden("vae.decode.z").transpose(1, 2)
    close(fused.decode(latents)[:, None], "vae.decode.audio")


@pytest.mark.parametrize("rate", [16000, 24000, 32000])
def test_fused_samples_as_of_another_rate_equal_the_goldens(rate: int, fused: AudioVAE) -> None:
    name = f"vae.decode.audio_sr{rate}"
    num = golden(name).shape[-1] // config().vae.output_hop
    latents = golden("vae.decode.z")[:1, :, :num].transpose(1, 2)
    close(fused.decode(latents, rate)[:, None], name)


def test_fused_latents_equal_the_goldens(fused: AudioVAE) -> None:
    means = fused.encode(golden("vae.encode.audio")[None])
    close(means.transpose(1, 2), "vae.encode.mu")


@pytest.mark.parametrize("num", [1, 5, 79])
def test_fused_windows_equal_the_plain_whole(num: int, fused: AudioVAE) -> None:
    latents = patches(num)
    context = -(-CONTEXT_LATENTS // config().patch_size)
    windows = in_windows(fused, latents, WINDOW_PATCHES, context)
    assert (windows - vae().decode(latents)[0]).abs().max() < 2 * BOUND


def test_fused_rows_of_one_batch_do_not_hear_each_other(fused: AudioVAE) -> None:
    latents = torch.cat([patches(9), patches(9).flip(1)])
    together = fused.decode(latents)
    for row in (0, 1):
        alone = fused.decode(latents[row : row + 1])
        assert (together[row] - alone[0]).abs().max() < BOUND


def test_units_in_one_launch_and_in_two_equal_the_plain_ones() -> None:
    """Widths 144 and 72, 144 and 288: more channels than a program holds, and fewer."""
    c = replace(
        narrow(288), encoder_dim=144, encoder_rates=(2, 5), decoder_rates=(3, 2), latent_dim=4
    )
    plain, fused = random_vaes(c, CPU, (torch.float32, False), (torch.float32, True))
    latents, samples = torch.randn(2, 3, 4), torch.randn(2, 33)
    for bucket_of_hz in (16000, 48000):
        right = plain.decode(latents, bucket_of_hz)
        assert right.std() > 0.01
        torch.testing.assert_close(fused.decode(latents, bucket_of_hz), right, atol=1e-5, rtol=0)
    right = plain.encode(samples)
    assert right.shape == (2, 4, 4)
    torch.testing.assert_close(fused.encode(samples), right, atol=1e-4, rtol=0)


@in_interpreter
def test_fused_chains_through_the_kernels_equal_the_plain_ones(
    monkeypatch: pytest.MonkeyPatch, launches: Callable[..., list[str]]
) -> None:
    c = replace(narrow(32), encoder_dim=16, decoder_rates=(4, 2), encoder_rates=(2, 3))
    plain, fused = random_vaes(c, CPU, (torch.float32, False), (torch.float32, True))
    latents, samples = torch.randn(2, 5, 64), torch.randn(1, 24)
    expected = plain.decode(latents), plain.encode(samples)
    monkeypatch.setattr(launch, "INTERPRET", True)
    logs = [
        launches(module, f"_{name}_kernel")
        for module, name in (
            (causal_conv, "causal_conv"),
            (depthwise_conv, "depthwise_conv"),
            (last_conv, "last_conv"),
        )
    ]
    torch.testing.assert_close(fused.decode(latents), expected[0], atol=1e-5, rtol=0)
    assert [len(log) for log in logs] == [1 + 2, 2 * 3, 1]
    torch.testing.assert_close(fused.encode(samples), expected[1], atol=1e-4, rtol=0)
    assert [len(log) for log in logs] == [3 + 2 + 2, 4 * 3, 1]


@in_interpreter
def test_trial_calls_launch_every_variant_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells variants apart: compile-time constants, and which tensors there are."""
    c = replace(
        narrow(272), encoder_dim=16, decoder_rates=(2, 1), encoder_rates=(2, 1), latent_dim=4
    )
    (model,) = random_vaes(c, CPU, (torch.float16, True))
    seen: set[tuple[object, ...]] = set()

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: object) -> Callable[..., None]:
            return self.launch

        def launch(self, *values: object, **constants: object) -> None:
            kinds = [str(getattr(x, "dtype", x is None)) for x in values]
            seen.add((self.name, *kinds, *constants.items()))

    monkeypatch.setattr(launch, "INTERPRET", True)
    for module, name in (
        (causal_conv, "_causal_conv_kernel"),
        (depthwise_conv, "_depthwise_conv_kernel"),
        (last_conv, "_last_conv_kernel"),
    ):
        monkeypatch.setattr(module, name, Kernel(name))
    for call in model.trial_calls():
        call()
    tried = set(seen)
    seen.clear()
    model.decode(torch.randn(2, 8, 4))
    model.encode(torch.randn(2, 32))
    assert seen == tried
    assert len(seen) == 17


def test_a_plain_vae_is_tried_by_a_latent() -> None:
    (call,) = vae().trial_calls()
    assert isinstance(samples := call(), Tensor)
    assert samples.shape == (1, config().vae.output_hop)


def test_float16_is_fifteen_db_closer_than_bfloat16() -> None:
    """The official geometry at a sixteenth of its width."""
    plain, half, brain = random_vaes(
        narrow(128),
        CPU,
        (torch.float32, False),
        (torch.float16, True),
        (torch.bfloat16, True),
    )
    latents = torch.randn(1, 6, 64)
    right = plain.decode(latents)
    noise = [noise_db(model.decode(latents), right) for model in (half, brain)]
    assert noise[0] < -40
    assert noise[0] < noise[1] - 15


def test_values_past_float16_show_as_samples_that_are_no_numbers() -> None:
    plain, half = random_vaes(narrow(128), CPU, (torch.float32, False), (torch.float16, True))
    latents = torch.randn(2, 6, 64)
    latents[1, 2] *= 1e6
    samples = half.decode(latents)
    begin = 2 * half.config.output_hop
    assert plain.decode(latents).isfinite().all()
    assert samples[0].isfinite().all()
    assert samples[1, :begin].isfinite().all()
    assert not samples[1, begin:].isfinite().all()


def test_half_precision_is_float16_on_a_gpu_and_all_else_float32() -> None:
    cuda = torch.device("cuda")
    assert vae_dtype(cuda, torch.bfloat16) == torch.float16
    assert vae_dtype(cuda, torch.float32) == torch.float32
    assert vae_dtype(CPU, torch.bfloat16) == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_vae_on_a_cpu_is_plain(dtype: torch.dtype) -> None:
    assert AudioVAE(config().vae, read_vae(FIXTURE, config().vae), CPU, dtype).fused is None


@pytest.mark.gpu
def test_float16_on_a_gpu_is_fused_and_float32_is_plain() -> None:
    plain, fused = (
        AudioVAE(config().vae, read_vae(FIXTURE, config().vae), torch.device("cuda"), dtype)
        for dtype in (torch.float32, torch.float16)
    )
    assert plain.fused is None
    assert fused.fused is not None


@pytest.mark.gpu
def test_the_official_vae_on_a_gpu_is_close_to_float32_and_counts_no_fallback() -> None:
    device = torch.device("cuda")
    plain, fused = random_vaes(
        random_config().vae, device, (torch.float32, False), (torch.float16, True)
    )
    before = launch.fallbacks.copy()
    latents, samples = torch.randn(3, 41, 64, device=device), torch.randn(2, 6400, device=device)
    found = fused.decode(latents), fused.encode(samples)
    assert launch.fallbacks == before
    assert noise_db(found[0], plain.decode(latents)) < -48
    assert noise_db(found[1], plain.encode(samples)) < -48
    assert launch.fallbacks - before == {"AudioVAE": 1}


@pytest.mark.gpu
def test_a_captured_decode_equals_an_eager_one() -> None:
    device = torch.device("cuda")
    (model,) = random_vaes(narrow(512), device, (torch.float16, True))
    latents = torch.randn(4, 24, 64, device=device)
    eager = model.decode(latents)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model.decode(latents)
    graph.replay()
    assert torch.equal(captured, eager)
