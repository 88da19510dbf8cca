"""What convolution kernels share; their own tests hold the rest."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.conv_cases import both, depthwise_case
from ttsbatch.kernels import conv_finish as module
from ttsbatch.kernels import depthwise_conv as user
from ttsbatch.kernels.reference import depthwise_conv as reference


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value += tl.load(residual", "value -= tl.load(residual"),
        ("value + (u * bump) * inv_beta", "value + u * inv_beta"),
        ("value = value * tl.load(scale", "value = value + tl.load(scale"),
        ("value += tl.load(shift", "value -= tl.load(shift"),
        ("total + tl.load(bias + channel, mask=in_width, other=0.0)[None, :],", "total,"),
        ("(rows < C)[:, None]", "(rows < C - 1)[:, None]"),
    ],
)
def test_a_wrong_part_shows(old, new, mutant, device, error, monkeypatch):
    wrong = mutant(module, old, new)
    for name in ("activate", "finish", "square"):
        monkeypatch.setattr(user, name, getattr(wrong, name))
    inputs, options = depthwise_case(
        device, torch.float32, channels=12, pointwise=True, affine=True, residual=None, raw=None
    )
    expected = both(reference.depthwise_conv, inputs, options)
    found = both(user.depthwise_conv, inputs, options)
    assert any(error(a, b) > 1e-3 for a, b in zip(found, expected, strict=True))
