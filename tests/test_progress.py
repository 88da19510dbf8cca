"""Progress on stderr: plain lines into a pipe, a bar on a terminal."""

from __future__ import annotations

import io
import re
import time
from types import SimpleNamespace

import pytest

from ttsbatch.progress import Bar, Lines, Quiet, Tally, clock, make_progress
from ttsbatch.types import Demand


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def half_done() -> Tally:
    tally = Tally(rows=10, finished_before=2, made=3, failed=1, flagged=1, rejected=4)
    tally.audio_s, tally.expected_s, tally.expected_done_s = 20.0, 40.0, 10.0
    tally.started_s = time.monotonic() - 5.0
    return tally


def test_a_line_says_rows_speed_eta_and_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, tally = io.StringIO(), half_done()
    still = SimpleNamespace(monotonic=lambda: tally.started_s + 5.0)
    monkeypatch.setattr("ttsbatch.progress.time", still)
    Lines(stream, every_s=0.0).update(tally)
    line = stream.getvalue()
    assert "6/10 rows" in line
    assert "4.0 audio-s/s" in line
    assert "RTF 0.25" in line
    assert "ETA 0:15" in line
    assert "4 rejected  1 failed  1 flagged" in line


def test_more_done_than_was_expected_leaves_no_time_and_no_expectation_no_estimate() -> None:
    tally = half_done()
    tally.expected_s = 6.0
    assert tally.eta_s == 0.0
    tally.expected_s = 0.0
    assert tally.eta_s is None


def test_lines_come_only_now_and_then() -> None:
    stream = io.StringIO()
    lines = Lines(stream, every_s=60.0)
    lines.update(half_done())
    assert stream.getvalue() == ""


def test_a_run_without_any_audio_yet_shows_no_speed() -> None:
    stream = io.StringIO()
    Lines(stream, every_s=0.0).update(Tally(rows=3, expected_s=9.0))
    assert "0/3 rows  - audio-s/s  RTF -  ETA -" in stream.getvalue()


def test_a_terminal_gets_a_bar_with_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    bar = make_progress(stream, quiet=False)
    assert isinstance(bar, Bar)
    bar.phase("checking rows")
    bar.message("a [word] of warning")
    bar.update(half_done())
    bar.close()
    text = stream.getvalue()
    assert "a [word] of warning" in text
    assert "6/10 rows" in text
    assert "4 rejected  1 failed  1 flagged" in text


def test_bar_leaves_room_for_the_echo_of_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    bar = make_progress(stream, quiet=False)
    tally = half_done()
    tally.rows = 1_234_567  # with its trouble this is wider than the screen
    bar.update(tally)
    bar.close()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()
    shown = [line for line in lines if "1,234,567" in line]
    assert shown
    assert max(map(len, shown)) == 77


def test_quiet_shows_messages_only() -> None:
    stream = io.StringIO()
    quiet = make_progress(stream, quiet=True)
    assert isinstance(quiet, Quiet)
    quiet.phase("checking rows")
    quiet.update(half_done())
    quiet.message("look here")
    assert stream.getvalue() == "look here\n"


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "0:05"), (125, "2:05"), (3723, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_as_many_rows_at_once_as_the_longest_one_leaves_steps_for() -> None:
    assert Tally(rows=2048, expected_s=10_000.0, longest_s=20.0).num_parallel == 500
    uniform = Tally(rows=2048, expected_s=2048 * 3.0, longest_s=3.0)
    assert uniform.num_parallel == 2048
    assert Tally(rows=800, expected_s=801 * 2.0, longest_s=200.0).num_parallel == 100
    assert Tally(rows=10, finished_before=9, expected_s=2.0, longest_s=2.0).num_parallel == 1
    assert Tally(rows=3).num_parallel == 3  # nothing is known of their lengths
    assert Tally(rows=3, steps={6, None}).demand == Demand(3, frozenset({6, None}))
