"""Every run of every case of data/expected.json, through the command line.

Those that wait for text normalisation and splitting, which the tool does not have yet, are expected
to fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases.case_checks import CHECKS, check_every_run
from tests.cases.case_run import EXPECTED, CaseRun

WAIT = {"08": "numbers", "09": "typography", "10": "markup"}
WAIT_LONG = {"06": "splitting"}
"""Number of a case and what it waits for; the long one takes minutes to fail, so it doesn't run."""


def _runs() -> list[Any]:
    params = []
    for file, case in EXPECTED["cases"].items():
        for number, spec in enumerate(case["runs"]):
            marks = []
            case_number = file[:2]
            if case_number in WAIT:
                marks = [pytest.mark.xfail(strict=True, reason=WAIT[case_number])]
            if case_number in WAIT_LONG:
                marks = [pytest.mark.xfail(run=False, reason=WAIT_LONG[case_number])]
            name = f"{file}-{number}-{spec['model']}"
            params.append(pytest.param(file, spec, id=name, marks=marks))
    return params


@pytest.mark.parametrize(("file", "spec"), _runs())
def test_a_case_gives_what_is_expected(file: str, spec: dict[str, Any], tmp_path: Path) -> None:
    run = CaseRun(file, spec, tmp_path)
    run.run()
    check_every_run(run)
    for entry in spec.get("checks", []):
        check = {"check": entry} if isinstance(entry, str) else entry
        CHECKS[check["check"]](run, check)


def test_every_case_has_runs_unless_it_waits_for_later() -> None:
    for case in EXPECTED["cases"].values():
        assert case["runs"] or case["later"]
