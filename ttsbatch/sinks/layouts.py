"""make_layout(): the one place where a plan's layout is chosen."""

from __future__ import annotations

from pathlib import Path

from ttsbatch.plan import RunPlan
from ttsbatch.sinks.layout import FolderLayout, Layout
from ttsbatch.sinks.names import NameBook
from ttsbatch.sinks.packed import PackedLayout, TarShards


def make_layout(
    plan: RunPlan, out: Path, temp_folder: Path, names: NameBook, model_rate_hz: int
) -> Layout:
    """The layout of a run."""
    size, extension = plan.output.shard_size, plan.audio.file_format.extension
    if plan.output.layout == "dir":
        return FolderLayout(out, temp_folder, size, names, extension)
    if plan.output.layout == "tar":
        return PackedLayout(out, temp_folder, size, names, extension, TarShards())
    from ttsbatch.sinks.parquet import ParquetShards

    container = ParquetShards(plan.audio.rate_of(model_rate_hz), plan.output.save_codes)
    return PackedLayout(out, temp_folder, size, names, extension, container)
