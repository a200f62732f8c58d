"""Kill −9 of a study's coordinator, of a wave's process and of a child, wherever it may strike (Ray: `test_ray_kills`).

After a resume every planned cell is there exactly once, with the figures of a study that nothing happened to. A few
places are in the quick suite, all of them in the slow one.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.executors.base import News, Started
from assay.executors.elsewhere import WaveFiles
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.studies.execution import ready as preparing
from assay.studies.execution.fold import Mode
from assay.studies.execution.study_listing import study_state
from assay.studies.folder import find
from campaign.studies import contents, is_exact, repaired, resumed, run, undisturbed
from support import fake_studies, fake_wave
from support.fake_executor import Here, known_as_here
from support.fake_studies import fake_cells
from support.faults import PATIENCE_SECONDS, SLURM_PATIENCE_SECONDS, arm, killed

MOST = 400
"""More changes of the disk than any of these studies makes."""
WORDS = 19
"""Events of a fake cell of six steps in two blocks."""


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cells(monkeypatch)
    monkeypatch.setattr(WaveFiles, "command", property(command))
    monkeypatch.delenv("ASSAY_SLURM", raising=False)
    monkeypatch.setenv("FAKE", "rates")


def command(files: WaveFiles) -> list[str]:
    return [sys.executable, fake_wave.__file__, str(files.folder), str(files.number)]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("timed", (24, 97)),
        ("losses", (75,)),
        ("halving", (90,)),
        ("here", (45,)),
        *(pytest.param(kind, range(MOST), marks=pytest.mark.slow) for kind in ("timed", "losses", "halving", "here")),
        pytest.param("slurm", range(20, MOST, 7), marks=pytest.mark.slow),
    ],
)
def test_a_coordinator_killed_at_any_change_of_the_disk_loses_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, numbers: Iterable[int]
) -> None:
    if kind == "here":
        known_as_here(monkeypatch)
    whole = undisturbed(Home(tmp_path / "whole"), kind)
    for number in numbers:
        home = Home(tmp_path / f"killed-at-{number}-")
        process = run(home, kind, lambda home=home, number=number: arm(home.root, number, killed))
        code = process.wait()
        if code == 0:
            break
        assert code == -9, process.output.read_text()
        repaired(home, whole, SLURM_PATIENCE_SECONDS if kind == "slurm" else PATIENCE_SECONDS)
    else:
        assert len([*numbers]) < MOST / 10, "not every change was tried"


@pytest.mark.parametrize("numbers", [(20,), pytest.param(range(MOST), marks=pytest.mark.slow)])
def test_a_wave_killed_at_any_change_of_the_disk_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: Iterable[int]
) -> None:
    whole = contents(fake_studies.run(Home(tmp_path / "whole"), "local"))
    for number in numbers:
        known_as_here(monkeypatch)
        home = Home(tmp_path / f"killed-at-{number}-")
        monkeypatch.setenv("FAULT_WAVE", f"0 {number}")
        record = fake_studies.run(home, "here")
        monkeypatch.delenv("FAULT_WAVE")
        code = Here.submitted[0].process.wait()
        if code == 0:
            break
        assert code == -9
        assert len(record.cells) == len({one.cell.name for one in record.cells})
        repaired(home, whole)
    else:
        assert numbers != range(MOST), "not every change was tried"


@pytest.mark.parametrize("words", [(0, 9, 17, 18), pytest.param(range(WORDS), marks=pytest.mark.slow)])
def test_a_child_killed_at_any_of_its_events_is_recorded_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Iterable[int]
) -> None:
    whole = contents(fake_studies.run(Home(tmp_path / "whole"), "local"))
    begin, victim = preparing.start, "sdpa_attention, seed 0"
    for word in words:

        def start_one_that_dies(ready: ReadyRun, *args: Any, at: int = word, **options: Any) -> Any:
            mine = ready.run.optimizations and ready.run.seed == 0
            monkeypatch.setenv("FAKE", f"rates mute{at}" if mine else "rates")
            return begin(ready, *args, **options)

        monkeypatch.setattr(preparing, "start", start_one_that_dies)
        home = Home(tmp_path / f"killed-at-{word}-")
        record = fake_studies.run(home, "local")
        died = {} if word == WORDS - 1 else {victim: Status.KILLED}  # its result is there before its last word
        assert record.ending is StudyEnding.COMPLETE
        assert {one.cell.name: one.result.status for one in record.cells} == dict.fromkeys(whole, Status.DONE) | died
        state = study_state(find(home, "last"), home)
        assert [name for name, _, _ in state.problems] == [*died]
        assert sum(state.by_status.values()) == len(whole)
        monkeypatch.setattr(preparing, "start", begin)
        monkeypatch.setenv("FAKE", "rates")
        heard: list[News] = []
        is_exact(resumed(home, heard, Mode.RETRY_FAILED), whole)
        assert Counter(one.cell.name for one in heard if isinstance(one, Started)) == Counter([*died])
