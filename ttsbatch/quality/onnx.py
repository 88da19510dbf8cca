"""ONNX models that a user names: opened on one thread each, and looked at before they are used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ttsbatch.errors import PlanError
from ttsbatch.quality.extras import require

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


def check_file(option: str, path: Path) -> None:
    """See that a model could be opened.

    Raises:
        PlanError: the package or the file is missing.
    """
    require(option, "onnxruntime", "onnx")
    if not path.is_file():
        raise PlanError(f"{option}: no file {path}; expected an ONNX model")


def open_onnx(option: str, path: Path) -> InferenceSession:
    """Open a model on the CPU. Several threads may run it at once.

    Raises:
        PlanError: it cannot be opened.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    except Exception as e:  # each kind of damage has a class of its own there
        raise PlanError(f"{option}: {path} cannot be opened: {e}") from e
