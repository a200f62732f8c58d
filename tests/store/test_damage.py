"""200 damaged bytes in every kind of file that is read back: none is believed.

Each damaged file is refused with its name, counts as missing so that it is measured again, or says the same as before.
"""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.hardware import detect, rates
from assay.hardware.step_times import StepTimes
from assay.launch.rates import set_aside_damaged
from assay.records.status import Status
from assay.records.study import ComparisonRecord, StudyEnding
from assay.store.event_log import append
from assay.store.foreign import ForeignCode, check_own_code, remember
from assay.store.processes import this_process
from assay.store.result import compose
from assay.store.run_folder import RunFolder
from assay.studies.execution.fold import Progress, record_of
from assay.studies.folder import StudyFolder, StudyPlan
from support.children import make_ready
from support.comparisons import record
from support.machines import MEASURED
from support.records import made, result_of, step

BYTES = 200
File = tuple[Path, Callable[[], object]]
TIMES = StepTimes(depths=(1, 3), turns=((0.010, 0.024), (0.011, 0.025)), others_share=0.1)


def damages(path: Path, seed: int) -> Iterator[bytes]:
    """Change one byte of a file at 200 places, one after the other; the content is yielded, and whole at the end."""
    drawn, content = random.Random(seed), path.read_bytes()
    for _ in range(BYTES):
        place, change = drawn.randrange(len(content)), drawn.randrange(1, 256)
        damaged = content[:place] + bytes([content[place] ^ change]) + content[place + 1 :]
        _overwrite(path, damaged)
        yield damaged
    _overwrite(path, content)


def _overwrite(path: Path, content: bytes) -> None:
    """Write as many bytes as there are; a file that is made anew takes ten times as long."""
    with path.open("rb+" if path.exists() else "wb") as stream:
        stream.write(content)


@pytest.fixture
def run(home: Home) -> RunFolder:
    folder = made(home, make_ready(home))
    folder.write_result(result_of(home, folder.id).model_copy(update={"train_loss": 4.71}))
    process = this_process(os.getpid())
    assert process is not None
    folder.write_process(process)
    return folder


def study(home: Home) -> StudyFolder:
    kept = record(seeds=1)
    folder = StudyFolder(home.reports / kept.id)
    folder.write_record(kept)
    fields = {name: getattr(kept, name) for name in StudyPlan.model_fields if hasattr(kept, name)}
    folder.write_plan(StudyPlan(**fields, waves=(tuple(one.cell for one in kept.cells),)))
    return folder


def files(home: Home, run: RunFolder) -> dict[str, File]:
    """Every kind of record, with a function that reads it."""
    folder, machine = study(home), detect()
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), machine, {"cpu": MEASURED}))
    rates.step_times_file(home).write_bytes(rates.with_step_times(home, machine, "cpu", {"step": TIMES}))
    own = make_ready(home).run.model.model_copy(update={"own": "evil.py:make", "own_folder": "/tmp"})
    remember(home, [own])
    return {
        "run.json": (run.spec_file, run.spec),
        "result.json": (run.result_file, run.result),
        "process.json": (run.process_file, run.process),
        "study.json": (folder.plan_file, folder.plan),
        "comparison.json": (folder.record_file, folder.record),
        "foreign_code.json": (home.root / "foreign_code.json", lambda: refused(home, own)),
    }


def refused(home: Home, own: object) -> str:
    try:
        check_own_code(home, own)  # type: ignore[arg-type]
    except ForeignCode as error:
        return str(error)
    return "it may run"


def test_no_record_is_believed(home: Home, run: RunFolder) -> None:
    for seed, (name, (path, read)) in enumerate(files(home, run).items()):
        before, named = read(), 0
        for _ in damages(path, seed):
            try:
                assert read() == before, name
            except UsageError as error:
                named += name in str(error)
        assert named >= 0.95 * BYTES, f"{named} of {BYTES} damages of {name} were named"


@pytest.mark.parametrize("what", ["rates", "step_times"])
def test_no_measurement_is_believed_and_each_is_made_again(what: str, home: Home, run: RunFolder) -> None:
    files(home, run)
    path = {"rates": rates.rates_file, "step_times": rates.step_times_file}[what](home)
    read = {"rates": rates.known_rates, "step_times": rates.known_step_times}[what]
    machine = detect()
    before, named = read(home, machine), 0
    assert before
    for damaged in damages(path, 7):
        assert read(home, machine) in ({}, before)
        if not read(home, machine):
            heard = list[str]()
            set_aside_damaged(home, heard.append)
            assert [f"{path} is damaged" in said for said in heard] == [True]
            assert path.with_name(f"{path.name}.damaged").read_bytes() == damaged
            named += 1
    assert named >= 0.95 * BYTES


def test_no_line_of_a_log_is_believed(home: Home, run: RunFolder) -> None:
    for index in range(5):
        append(run.events_file, step(index))
    before = [event.line() for event in run.events()]
    for _ in damages(run.events_file, 3):
        log = run.log()
        for event in log.events:  # the name of its checksum may have suffered
            assert any({name: event.line().get(name) for name in whole} == whole for whole in before)
        assert log.damaged or len(log.events) == len(before)


@pytest.mark.parametrize("share", ["9.81", "-0.1", "NaN", "1e308"])
def test_a_share_of_the_cores_that_cannot_be_is_refused(share: str, home: Home) -> None:
    machine = detect()
    entry = TIMES.model_copy(update={"others_share": 0.125})
    content = rates.with_step_times(home, machine, "cpu", {"step": entry}).replace(b"0.125", share.encode())
    path = rates.step_times_file(home)
    path.write_bytes(content[: content.rindex(b',\n "digest"')] + b"}")
    assert rates.known_step_times(home, machine) == {}


def without_digest(path: Path) -> None:
    path.write_bytes(re.sub(rb',\n "digest": "[0-9a-f]+"\n', b"\n", path.read_bytes()))


def test_measurements_without_a_digest_are_made_again(home: Home, run: RunFolder) -> None:
    files(home, run)
    machine, heard = detect(), list[str]()
    for path, read in (
        (rates.rates_file(home), rates.known_rates),
        (rates.step_times_file(home), rates.known_step_times),
    ):
        assert read(home, machine)
        without_digest(path)
        assert read(home, machine) == {}
        set_aside_damaged(home, heard.append)
        assert f"{path} is damaged or has no digest" in heard[-1]
        assert not path.exists()


def test_notes_on_foreign_code_without_a_digest_are_refused(home: Home, run: RunFolder) -> None:
    path, read = files(home, run)["foreign_code.json"]
    without_digest(path)
    with pytest.raises(UsageError, match="has no digest"):
        read()


@pytest.mark.parametrize("name", ["comparison.json", "study.json"])
def test_a_study_without_a_digest_says_so_whatever_its_bytes(name: str, home: Home, run: RunFolder) -> None:
    path, read = files(home, run)[name]
    without_digest(path)
    for _ in damages(path, 11):
        with suppress(UsageError):
            assert f"not sealed: {name} has no digest" in read().unsealed  # type: ignore[attr-defined]
    StudyFolder(path.parent).write_record(_record_of(path.parent, name))
    kept = StudyFolder(path.parent).record()
    assert kept is not None
    assert f"not sealed: {name}" in kept.unsealed, "sealing it again does not forget it"


def _record_of(folder: Path, name: str) -> ComparisonRecord:
    study = StudyFolder(folder)
    plan, kept = study.plan(), study.record()
    assert plan is not None
    assert kept is not None
    return kept if name == "comparison.json" else record_of(plan, Progress([], []), StudyEnding.INTERRUPTED)


def test_a_run_without_a_digest_says_so_whatever_its_bytes(home: Home, run: RunFolder) -> None:
    without_digest(run.result_file)
    for _ in damages(run.result_file, 12):
        with suppress(UsageError):
            found = run.result()
            assert found is not None
            assert "not sealed: result.json has no digest" in str(found.reason)
    run.result_file.unlink()
    append(run.events_file, step(0))
    assert compose(run, Status.DONE, None).reason is None
    run.events_file.write_bytes(run.events_file.read_bytes() + json.dumps(step(1)).encode() + b"\n")
    without_digest(run.spec_file)
    said = str(compose(run, Status.DONE, None).reason)
    assert "not sealed: run.json" in said
    assert "not sealed: 1 line of events.jsonl has no checksum" in said
