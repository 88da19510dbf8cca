"""Any history of edits, kills and reruns ends in what one unbroken run would have made."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.resume.test_kills import killed
from tests.sinks.fake_run import audio, content, failure, manifest, run, utterance
from ttsbatch.sinks.names import fold

IDS = st.sampled_from(["a", "A", "b", "c/d", "c_d", "e", "f"])
MEMORY = Path("/dev/shm")


class History(RuleBasedStateMachine):
    """A corpus that changes, and runs over it that may die at any write."""

    @initialize(shard_size=st.integers(1, 4))
    def begin(self, shard_size: int) -> None:
        folder = MEMORY if os.access(MEMORY, os.W_OK) else None
        self.work = Path(tempfile.mkdtemp(prefix="ttsbatch-test-", dir=folder))
        self.out = self.work / "out"
        self.shard_size = shard_size
        self.texts: dict[str, str] = {}
        self.made: dict[str, str] = {}  # what whole runs made last
        self.dirty = True  # something happened since the last whole run
        self.num_rejects = 0
        self.killed_since = False  # and did not come to its end

    @rule(id=IDS, text=st.sampled_from(["one", "two", "three"]))
    def add_or_edit(self, id: str, text: str) -> None:
        self.dirty |= self.texts.get(id) != text
        self.texts[id] = text

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        del self.texts[data.draw(st.sampled_from(sorted(self.texts)))]
        self.dirty = True

    @rule(count=st.integers(0, 3))
    def reject(self, count: int) -> None:
        self.dirty |= count != self.num_rejects
        self.num_rejects = count

    @rule(at=st.integers(1, 70))
    def run_killed(self, at: int) -> None:
        if killed(self._run, at):
            self.dirty = self.killed_since = True

    @rule()
    def run_whole(self) -> None:
        made = self._run()
        for id in made:  # none that a whole run made, unless edited since
            assert self.texts[id] != self.made.get(id) or self.killed_since
        self.made |= self.texts
        self.dirty = False
        self.killed_since = False
        files, lines = audio(self.out), {m["id"]: m for m in manifest(self.out)}
        assert set(self.texts) <= set(files)
        assert {id: lines[id]["text"] for id in self.texts} == self.texts
        fresh = self.work / "fresh"
        rows = [utterance(id, text) for id, text in self.texts.items()]
        run(fresh, rows, shard_size=self.shard_size)
        assert {id: files[id] for id in self.texts} == audio(fresh)
        shutil.rmtree(fresh)
        assert len({fold(m["audio_filepath"]) for m in lines.values()}) == len(lines)
        failures = (self.out / "failures.jsonl").read_bytes().splitlines()
        assert len(failures) == self.num_rejects

    @precondition(lambda self: not self.dirty)
    @rule()
    def run_with_nothing_to_do(self) -> None:
        before = content(self.out)
        assert self._run() == []
        assert content(self.out) == before

    @invariant()
    def no_file_is_torn(self) -> None:
        for path in self.out.rglob("*.wav"):  # wherever somebody may look for audio
            data = path.read_bytes()
            assert int.from_bytes(data[4:8], "little") + 8 == len(data)

    def _run(self) -> list[str]:
        rows = [utterance(id, text) for id, text in self.texts.items()]
        rejects = [failure(90 + i) for i in range(self.num_rejects)]
        return run(self.out, rows, rejects, shard_size=self.shard_size)

    def teardown(self) -> None:
        shutil.rmtree(self.work)


# A killed process loses nothing that it wrote, synced or not, so the tests of every kill leave
# fsync out; here the folder is in memory, where it costs nothing.
TestAnyHistory = History.TestCase
TestAnyHistory.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
