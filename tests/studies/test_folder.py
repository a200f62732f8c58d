"""The folder of a study: what is written is read again, and damage is one sentence."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.studies.folder import StudyFolder, StudyPlan, find, folders, new_id
from support.comparisons import record


def saved(home: Home, name: str = "20261121-000000-0000") -> StudyFolder:
    folder = StudyFolder(home.reports / name)
    folder.write_record(record().model_copy(update={"id": name}))
    return folder


def test_a_record_is_read_as_it_was_saved(tmp_path: Path) -> None:
    made = record()
    folder = StudyFolder(tmp_path / made.id)
    assert folder.write_record(made) == tmp_path / made.id / "comparison.json"
    assert folder.record() == made
    assert folder.plan() is None


def test_a_loss_that_was_not_finite_is_read_as_missing(tmp_path: Path) -> None:
    made = record()
    folder = StudyFolder(tmp_path / made.id)
    first, *rest = made.cells
    diverged = first.model_copy(
        update={"curve": first.curve.model_copy(update={"train_loss": (2.0, float("nan"), float("inf"))})}
    )
    folder.write_record(made.model_copy(update={"cells": (diverged, *rest)}))
    read = folder.record()
    assert read is not None
    assert read.cells[0].curve.train_loss == (2.0, None, None)


def test_a_damaged_record_is_one_sentence(tmp_path: Path) -> None:
    folder = saved(Home(tmp_path))
    folder.record_file.write_text('{"id": 1')
    with pytest.raises(UsageError, match="cannot be read"):
        folder.record()


def test_a_damaged_record_is_written_anew_where_its_plan_and_its_log_are_there(tmp_path: Path) -> None:
    folder = saved(Home(tmp_path))
    folder.record_file.write_text('{"id": 1}')
    removed, anew = r"\(\d+ faults\); remove its folder", f"; `assay study resume {folder.id}` writes it anew"
    with pytest.raises(UsageError, match=removed):
        folder.record()
    made = record()
    folder.write_plan(
        StudyPlan(
            id=folder.id,
            created="",
            kind="comparison",
            title="",
            base=made.base,
            seeds=(0,),
            treatments=(),
            protocol=made.protocol,
            waves=((made.cells[0].cell,),),
        )
    )
    with pytest.raises(UsageError, match=removed):  # a record that came without its runs would train all of them
        folder.record()
    folder.append({"event": "plan"})
    with pytest.raises(UsageError, match=anew):
        folder.record()
    folder.plan_file.write_text("{")
    with pytest.raises(UsageError, match=r"\(1 fault\); remove its folder"):
        folder.plan()
    with pytest.raises(UsageError, match=removed):
        folder.record()


def test_a_study_is_found_by_the_start_of_its_id(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(UsageError, match="there are no studies"):
        find(home, "last")
    one, other = saved(home), saved(home, "20261122-000000-0000")
    assert [folder.id for folder in folders(home)] == [one.id, other.id]
    assert find(home, "last").id == other.id
    assert find(home, "20261121").id == one.id
    with pytest.raises(UsageError, match="start of several"):
        find(home, "2026112")
    with pytest.raises(UsageError, match="there is no study '3'"):
        find(home, "3")
    record = one.record()
    assert record is not None
    assert find(home, record.title).id == other.id, "a list calls a study without a name by its base"
    one.write_record(record.model_copy(update={"name": record.title}))
    assert find(home, record.title).id == one.id, "a name comes before a base"
    one.write_record(record.model_copy(update={"name": "ladder (small)"}))
    assert find(home, "ladder").id == find(home, "ladder (small)").id == one.id, "a published study at any scale"


def test_no_name_means_no_study(tmp_path: Path) -> None:
    """An empty variable of a shell must not stop or resume the only study."""
    saved(Home(tmp_path))
    with pytest.raises(UsageError, match="there is no study ''"):
        find(Home(tmp_path), "")


def test_only_one_process_runs_a_study(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "one")
    assert not folder.running
    with folder.locked():
        assert folder.running
        with pytest.raises(UsageError, match="another process is running"), folder.locked():
            pass
    assert not folder.running


def test_a_reader_that_looks_whether_a_study_runs_keeps_no_process_from_it(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "one")
    with folder.locked():
        pass
    with (folder.path / "lock").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        threading.Timer(0.03, fcntl.flock, (reader, fcntl.LOCK_UN)).start()
        with folder.locked():
            assert folder.running


def test_the_signature_of_an_earlier_process_is_not_believed(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "one")
    with folder.locked():
        now = folder.holder()
        assert now is not None
        assert now.pid == os.getpid()
        (folder.path / "lock").write_text(now.model_copy(update={"pid": 2**22 + 1}).model_dump_json())
        assert folder.holder() is None
        (folder.path / "lock").write_text(now.model_copy(update={"start_ticks": 1}).model_dump_json())
        assert folder.holder() is None, "its number belongs to another process now"
        (folder.path / "lock").write_text(now.model_copy(update={"host": "elsewhere"}).model_dump_json())
        assert folder.holder() is not None


def test_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(50)}) > 45
