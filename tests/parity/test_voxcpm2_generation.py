"""Whole generations of VoxCPM2 through the real slot engine, with the goldens' noise and our own.

fp32 on a CPU. A patch feeds the next one, and FSQ has edges, so equality of whole runs says that
every part of a step is right.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.parity.voxcpm2 import ATOL, CPU, FIXTURE, META, MODES, config, golden
from tests.parity.voxcpm2_rows import (
    golden_job,
    golden_model,
    golden_prompt,
    job,
    model,
    run,
    segment,
)
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.rows import Rows
from ttsbatch.engine.sampling import Sampler
from ttsbatch.engine.vocode import Vocoder
from ttsbatch.models.protocol import PreparedPrompt, Seat
from ttsbatch.types import EngineStats, Failure, Sampling, Waveform

pytestmark = pytest.mark.usefixtures("small_frames")


def check(mode: str, finished: FinishedFrames) -> None:
    """Patches and the way it ended are the golden ones."""
    meta = META["modes"][mode]
    latents = golden(f"gen.{mode}.vae_input")[0].T.unflatten(0, (-1, config().patch_size))
    expected = latents[meta["vae_context_patches"] :].flatten(1)
    assert len(finished.frames) == meta["patches"]
    torch.testing.assert_close(finished.frames, expected, atol=ATOL, rtol=0)
    assert finished.finish_reason == ("stop" if meta["stopped"] else "length")


@cache
def alone(mode: str) -> FinishedFrames:
    return run(golden_model(), [golden_job(mode)], 1)[mode]


@pytest.mark.parametrize("mode", MODES)
def test_prompts_equal_the_goldens(mode: str) -> None:
    layout = golden_prompt(mode).payload
    np.testing.assert_array_equal(layout.token_ids, golden(f"gen.{mode}.text_token")[0])
    np.testing.assert_array_equal(layout.is_audio, golden(f"gen.{mode}.audio_mask")[0] > 0)
    np.testing.assert_array_equal(~layout.is_audio, golden(f"gen.{mode}.text_mask")[0] > 0)
    patches = golden(f"gen.{mode}.audio_feat")[0]
    with torch.inference_mode():
        encoded = golden_model()._encode([p.clip for p in layout.clips])
    for placed, found in zip(layout.clips, encoded, strict=True):
        own = patches[placed.at : placed.at + placed.num_patches]
        torch.testing.assert_close(found.patches, own, atol=ATOL, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_alone_gives_the_golden_patches(mode: str) -> None:
    check(mode, alone(mode))


@pytest.mark.parametrize(("num_slots", "shuffle"), [(3, 1), (8, 2)])
def test_all_modes_shuffled_through_slots_give_the_golden_patches(
    num_slots: int, shuffle: int
) -> None:
    modes = list(MODES)
    random.Random(shuffle).shuffle(modes)
    done = run(golden_model(), [golden_job(mode) for mode in modes], num_slots)
    for mode in MODES:
        check(mode, done[mode])


@pytest.mark.parametrize("mode", MODES)
def test_mu_and_stop_logits_of_every_step_equal_the_goldens(mode: str) -> None:
    n = golden_model().network
    seen: list[tuple[Tensor, Tensor]] = []
    mu, stop = n.mu, n.stop_logits
    try:
        n.mu = lambda *a: seen.append((mu(*a), torch.empty(0))) or seen[-1][0]  # type: ignore
        n.stop_logits = lambda h: seen.append((torch.empty(0), stop(h))) or seen[-1][1]  # type: ignore
        run(golden_model(), [golden_job(mode)], 1)
    finally:
        del n.mu, n.stop_logits
    num = META["modes"][mode]["patches"]
    mus = torch.cat([a.flatten(1) for a, _ in seen if len(a)])[:num]
    stops = torch.cat([b for _, b in seen if len(b)])[:num]
    torch.testing.assert_close(mus, golden(f"gen.{mode}.mu_per_step"), atol=ATOL, rtol=0)
    torch.testing.assert_close(stops, golden(f"gen.{mode}.stop_logits"), atol=ATOL, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_waveforms_equal_the_goldens(mode: str) -> None:
    wave = vocode(alone(mode))
    expected = golden(f"gen.{mode}.wav")[0].numpy()
    np.testing.assert_allclose(wave.samples / 32767, expected, atol=ATOL)
    assert wave.num_frames == META["modes"][mode]["patches"]


def vocode(finished: FinishedFrames) -> Waveform:
    vocoder = Vocoder(golden_model(), EngineStats(), keep_codes=False)
    vocoder.add(finished)
    (wave,) = vocoder.drain()
    return wave


READS = {"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "equal"}


class NoHostRead(TorchDispatchMode):
    """Fails on whatever reads a value from the device, or makes a shape of one."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__.split(".")[0]
        assert name not in READS, f"host read: {name}"
        if name in ("index", "index_put_"):
            places = [x for x in args[1] if x is not None]
            assert all(x.dtype != torch.bool for x in places), "host read: a mask as index"
        return func(*args, **(kwargs or {}))


def test_a_step_reads_nothing_back_and_moves_none_of_its_buffers() -> None:
    m = model()
    prompts = [m.prepare(segment(n)) for n in ("long", "coarse")]
    assert all(isinstance(p, PreparedPrompt) for p in prompts)
    with torch.inference_mode():
        state = m.new_state(3, 9, 64)
        m.stage(state, [Seat(i, p, (1 + i,)) for i, p in enumerate(prompts)])  # type: ignore
        m.prefill(state, 16)
        rows = Rows(3, 8, m.spec.frame_width, CPU, m.spec.frame_dtype)
        rows.active[:2] = True
        buffers = [x.data_ptr() for x in (state.x, state.cond, state.position, state.kv.k)]
        with NoHostRead():
            frame = m.step(state, rows, Sampler(rows), bound=32)
        with pytest.raises(AssertionError, match="host read"), NoHostRead():
            frame.ended[0].item()
        with pytest.raises(AssertionError, match="host read"), NoHostRead():
            frame.values[frame.ended]
    assert frame.values.shape == (3, 256)
    assert buffers == [x.data_ptr() for x in (state.x, state.cond, state.position, state.kv.k)]


def test_guidance_and_steps_change_what_is_said() -> None:
    plain = segment("long", max_seconds=0.2)
    for other in (Sampling(guidance=3.0), Sampling(steps=4)):
        changed = replace(plain, utterance=replace(plain.utterance, id="other", sampling=other))
        done = run(model(), [job(plain), job(changed)], 2)
        assert (done["long"].frames[0] - done["other"].frames[0]).abs().max() > 1e-3


def test_steps_beyond_those_of_the_run_are_refused() -> None:
    refused = model().prepare(segment("long", sampling=Sampling(steps=11)))
    assert isinstance(refused, Failure)
    assert (refused.reason, "2 to 10" in refused.message) == ("unsupported_option", True)


def test_an_instruction_beside_a_continued_clip_is_refused() -> None:
    path = str(FIXTURE / "audio" / "prompt.wav")
    said = segment("long", instruct="soft", ref_audio=path, ref_text="hello.")
    refused = model().prepare(said)
    assert isinstance(refused, Failure)
    assert refused.reason == "unsupported_option"


def test_the_fields_of_a_row_choose_the_mode() -> None:
    path = str(FIXTURE / "audio" / "ref.wav")
    plain = model().prepare(segment("short"))
    voiced = model().prepare(segment("short", ref_audio=path, instruct="soft"))
    continued = model().prepare(segment("short", ref_audio=path, ref_text="hello."))
    assert isinstance(plain, PreparedPrompt)
    assert isinstance(voiced, PreparedPrompt)
    assert isinstance(continued, PreparedPrompt)
    assert plain.payload.token_ids.tolist() == [301, 287, 101]
    ids = voiced.payload.token_ids.tolist()
    assert (ids[0], ids[10], ids[-1]) == (103, 104, 101)
    assert ids[12] == 289  # "(" of the instruction
    assert model().context_frames(voiced) is None
    assert continued.payload.token_ids.tolist()[-9:] == [0] * 9
    assert continued.payload.clips[0].clip.padded == "left"
    assert len(model().context_frames(continued)) == 3


def test_a_missing_clip_is_a_failure_of_its_row(tmp_path: Any) -> None:
    refused = model().prepare(segment("short", ref_audio=str(tmp_path / "none.wav")))
    assert isinstance(refused, Failure)
    assert refused.reason == "ref_unreadable"
