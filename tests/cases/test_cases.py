"""Every run of every case of data/expected.json, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases.case_checks import CHECKS, check_every_run
from tests.cases.case_run import EXPECTED, CaseRun

MAX_CHARS = {"06": 700}
"""Number of a case whose texts are shortened here, still two pieces or more: a minute less."""


def _runs() -> list[Any]:
    params = []
    for file, case in EXPECTED["cases"].items():
        for number, spec in enumerate(case["runs"]):
            params.append(pytest.param(file, spec, id=f"{file}-{number}-{spec['model']}"))
    return params


@pytest.mark.parametrize(("file", "spec"), _runs())
def test_a_case_gives_what_is_expected(file: str, spec: dict[str, Any], tmp_path: Path) -> None:
    run = CaseRun(file, spec, tmp_path, max_chars=MAX_CHARS.get(file[:2]))
    run.run()
    check_every_run(run)
    for entry in spec.get("checks", []):
        check = {"check": entry} if isinstance(entry, str) else entry
        CHECKS[check["check"]](run, check)


def test_every_case_has_runs_unless_it_waits_for_later() -> None:
    for case in EXPECTED["cases"].values():
        assert case["runs"] or case["later"]
