"""Every module of VoxCPM2 against the goldens of the official package, fp32 on a CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.parity.voxcpm2 import (
    CPU,
    FIXTURE,
    close,
    config,
    golden,
    goldens,
    network,
    time_major,
    vae,
)
from ttsbatch.models.decoder import PagedDecoder
from ttsbatch.models.voxcpm2.blocks import LocalStack, long_rope, silu_between
from ttsbatch.models.voxcpm2.config import parse_config
from ttsbatch.models.voxcpm2.flow import FEWEST_STEPS, num_still, sinusoid, time_points, walk
from ttsbatch.models.voxcpm2.network import Network


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def test_the_goldens_are_96() -> None:
    assert len(goldens()) == 96


@pytest.mark.parametrize("case", ["equal", "longer"])
def test_rotary_tables_equal_the_goldens(case: str) -> None:
    raw = json.loads((FIXTURE / "config.json").read_text("utf8"))
    if case == "longer":  # beyond the original length: the long factors, and a scale
        raw["lm_config"]["rope_scaling"]["original_max_position_embeddings"] = 64
    rope = parse_config(raw, "config.json").rope
    rotary = long_rope(rope, 512, CPU)
    at = golden(f"rope.{case}.positions")
    close(rotary.cos[at].repeat(1, 2), f"rope.{case}.cos", atol=1e-5)
    close(rotary.sin[at].repeat(1, 2), f"rope.{case}.sin", atol=1e-5)


@pytest.mark.parametrize("name", ["lm", "residual"])
def test_prompts_and_steps_of_the_language_models_equal_the_goldens(name: str) -> None:
    lm: PagedDecoder = getattr(network(), name)
    kv = lm.new_kv(4, CPU, torch.float32)
    table = torch.tensor([[2, 3]], dtype=torch.int32)
    x = golden(f"{name}.prefill.inputs_embeds")[0]
    hidden = lm.prefill(x, torch.arange(len(x)), kv, table.expand(len(x), -1))
    close(hidden[None], f"{name}.prefill.hidden")
    if name == "lm":
        close(kv.k[0, 2, :, : len(x)][None], "lm.prefill.k_layer0")
        close(kv.v[0, 2, :, : len(x)][None], "lm.prefill.v_layer0")
    steps = []
    for n, row in enumerate(golden(f"{name}.step.inputs_embeds")):
        position = torch.tensor([len(x) + n])
        steps.append(lm.step(row[None], position, kv, table, bound=32))
    close(torch.cat(steps), f"{name}.step.hidden")


def test_packed_prompts_do_not_hear_each_other() -> None:
    lm = network().lm
    x = golden("lm.prefill.inputs_embeds")[0]
    kv = lm.new_kv(4, CPU, torch.float32)
    position = torch.cat([torch.arange(5), torch.arange(len(x)), torch.zeros(3, dtype=torch.long)])
    table = torch.tensor([1] * 5 + [2] * len(x) + [0] * 3, dtype=torch.int32)[:, None]
    packed = torch.cat([x[:5].flip(0), x, x[:3]])
    hidden = lm.prefill(packed, position, kv, table)
    close(hidden[5 : 5 + len(x)][None], "lm.prefill.hidden")


def test_fsq_equals_the_goldens() -> None:
    n, hidden = network(), golden("fsq.in")
    close(n.grid(hidden), "fsq.codes", atol=0)
    close(n.quantize(hidden), "fsq.out")


@pytest.mark.parametrize(("half", "even"), [(0.5, 0), (1.5, 2), (2.5, 2), (3.5, 4)])
def test_halves_of_fsq_round_to_even(half: float, even: int) -> None:
    """Where tanh is 1 or -1 to the last bit, codes are the scale: a half, here."""
    n = Network(replace(config(), fsq_scale=half), network().weights)  # type: ignore[arg-type]
    codes = n.grid(1e6 * golden("fsq.in"))
    assert (codes.abs() == even).all()
    assert even == 0 or codes.unique().tolist() == [-even, even]


def test_the_patch_encoder_equals_the_goldens() -> None:
    patches = golden("enc.in").flatten(0, 1)
    close(network().encode(patches).unflatten(0, (2, 3)), "enc.cls")
    close(network().embed_patches(patches).unflatten(0, (2, 3)), "enc.to_lm")


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_stack_gives_some_tokens_as_it_gives_all(num_layers: int) -> None:
    n, c = network().weights.dit.stack, config().dit
    weights = replace(n, layers=n.layers[:num_layers])
    x = torch.randn(6, 3, c.hidden_size)

    def run(wanted: slice, order: list[int]) -> Tensor:
        stack = LocalStack(c, weights, long_rope(config().rope, 8, CPU), order, wanted)
        return stack(x[order], stack.project(x[order]))

    whole = run(slice(0, 6), [0, 1, 2, 3, 4, 5])
    assert whole.shape == x.shape
    torch.testing.assert_close(run(slice(0, 1), [0, 1, 2, 3, 4, 5]), whole[:1])
    # Tokens may lie in any order, as long as their positions do.
    torch.testing.assert_close(run(slice(4, 6), [3, 2, 0, 1, 5, 4]), whole[[5, 4]])


def test_projections_and_the_stop_head_equal_the_goldens() -> None:
    n = network()
    lm, residual = golden("heads.lm_hidden"), golden("heads.res_hidden")
    close(n.mu(lm, residual).flatten(1), "heads.mu")
    close(n.stop_logits(lm), "heads.stop_logits")
    everywhere = torch.ones(len(lm), dtype=torch.bool)
    close(n.residual_input(lm, residual, everywhere), "heads.fusion")


def test_the_velocity_network_equals_the_goldens() -> None:
    dit = network().dit
    angles = sinusoid(golden("dit.t"), config().dit.hidden_size)
    close(silu_between(angles, *dit.weights.time), "dit.time_embed")
    time = dit.embed_time(angles)
    x, cond = time_major(golden("dit.x")), time_major(golden("dit.cond"))
    mu = golden("dit.mu").unflatten(1, (2, -1))
    out = dit.velocity(dit.tokens(mu, cond), x.transpose(0, 1).contiguous(), time)
    close(out.permute(1, 2, 0), "dit.out")


@pytest.mark.parametrize(
    ("case", "steps", "guidance"),
    [("n10_cfg2", 10, 2.0), ("n6_cfg1p5", 6, 1.5), ("n30_cfg3", 30, 3.0)],
)
def test_the_solver_equals_the_goldens(case: str, steps: int, guidance: float) -> None:
    close(time_points(steps, torch.float32), f"cfm.{case}.t_span", atol=1e-6)
    dit, name = network().dit, f"cfm.{case}."
    patch = dit.solve(
        time_major(golden(f"{name}noise")),
        golden(f"{name}mu").unflatten(1, (2, -1)),
        time_major(golden(f"{name}cond")),
        torch.full((3,), guidance),
        torch.full((3,), steps),
        dit.schedule(steps),
    )
    close(patch.transpose(1, 2), f"{name}out")


def test_rows_of_one_batch_have_their_own_guidance_and_steps() -> None:
    dit = network().dit
    cases = [("n10_cfg2", 10, 2.0), ("n6_cfg1p5", 6, 1.5), ("n30_cfg3", 30, 3.0)]

    def together(what: str) -> torch.Tensor:
        return torch.cat([golden(f"cfm.{case}.{what}") for case, *_ in cases])

    patches = dit.solve(
        time_major(together("noise")),
        together("mu").unflatten(1, (2, -1)),
        time_major(together("cond")),
        torch.tensor([g for *_, g in cases]).repeat_interleave(3),
        torch.tensor([n for _, n, _ in cases]).repeat_interleave(3),
        dit.schedule(30),
    )
    torch.testing.assert_close(patches.transpose(1, 2), together("out"), atol=1e-4, rtol=0)


def test_times_in_bfloat16_are_rounded_as_officially() -> None:
    assert torch.equal(time_points(10, torch.bfloat16), golden("bf16.t_span_n10"))
    times, widths = walk(10, torch.bfloat16)
    assert torch.equal(times, golden("bf16.t_at_step_n10"))
    assert widths.dtype == torch.bfloat16
    assert torch.equal(sinusoid(times, 1024), golden("bf16.sinusoid_1024"))


def test_a_patch_takes_one_evaluation_less_than_steps() -> None:
    assert [num_still(n) for n in (2, 10, 48, 49, 74)] == [1, 1, 1, 2, 3]
    assert network().dit.schedule(10).num_evaluations == 9
    assert network().dit.schedule(FEWEST_STEPS).num_evaluations == 1


def test_decoded_samples_equal_the_goldens() -> None:
    latents = golden("vae.decode.z").transpose(1, 2)
    close(vae().decode(latents)[:, None], "vae.decode.audio")


@pytest.mark.parametrize("rate", [16000, 24000, 32000])
def test_samples_decoded_as_of_another_rate_equal_the_goldens(rate: int) -> None:
    name = f"vae.decode.audio_sr{rate}"
    latents = golden("vae.decode.z")[:1].transpose(1, 2)
    num = golden(name).shape[-1] // config().vae.output_hop
    close(vae().decode(latents[:, :num], rate)[:, None], name)


def test_rate_buckets_are_those_of_bucketize() -> None:
    boundaries = torch.tensor(config().vae.rate_boundaries_hz)
    for rate in (8000, 16000, 20000, 20001, 24000, 30000, 40000, 48000):
        assert vae().rate_bucket(rate) == int(torch.bucketize(rate, boundaries))


def test_encoded_latents_equal_the_goldens() -> None:
    means = vae().encode(golden("vae.encode.audio")[None])
    close(means.transpose(1, 2), "vae.encode.mu")
