"""The checks before a run: each in its place, and nothing written before all have passed."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import Home, Run, identity, validate
from assay.data import open_prepared
from assay.errors import StorageError, UsageError
from assay.hardware.detect import usable_cores
from assay.launch import prepare
from assay.launch import spawn as launcher
from assay.launch.prepare import ready
from assay.launch.spawn import start
from assay.optimizations import Conflict, Unavailable
from assay.store.index import Store
from assay.store.lookup import find
from support.children import Fake, make_ready


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path / "not" / "yet")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike. " * 60)
    return path


def tiny(text: Path, **groups: Any) -> Run:
    model = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, **groups.pop("model", {})}
    data = {"path": str(text), **groups.pop("data", {})}
    return validate({"model": model, "data": data, "training": {"batch_size": 2, "steps": 2}, **groups})


def test_a_ready_run_is_complete(place: Home, text: Path) -> None:
    said: list[str] = []
    found = ready(tiny(text, data={"tokenizer": "char"}), place, lambda message, fraction: said.append(message))
    assert found.run.model.vocab_size == len(set(text.read_text()))
    assert found.data_folder.is_dir()
    assert found.predicted is not None
    assert found.predicted.tensors_peak_bytes is not None
    assert found.identity == identity(found.run)
    assert said
    assert list(place.runs.iterdir()) == []


@pytest.mark.parametrize("asked", [None, 3, 400])
def test_the_batches_of_an_evaluation_are_counted(place: Home, text: Path, asked: int | None) -> None:
    found = ready(tiny(text, training={"batch_size": 2, "steps": 2, "eval_batches": asked}), place)
    windows, rest = divmod(len(open_prepared(found.data_folder).validation) - 1, 8)
    whole = -(-windows // 2) + bool(rest)
    assert found.eval_batches == {None: whole, 3: 3, 400: windows // 2}[asked]


def test_the_order_of_listing_is_not_part_of_the_identity(place: Home, text: Path) -> None:
    names = ["sdpa_attention", "activation_checkpointing"]
    runs = [tiny(text, optimizations=listed) for listed in (names, names[::-1])]
    one, other = (ready(run, place) for run in runs)
    assert one.identity == other.identity


def test_a_larger_vocabulary_is_kept(place: Home, text: Path) -> None:
    assert ready(tiny(text, model={"vocab_size": 320}), place).run.model.vocab_size == 320


@pytest.mark.parametrize("tokenizer", ["byte", "char"])
def test_a_smaller_one_is_refused(place: Home, text: Path, tokenizer: str) -> None:
    with pytest.raises(UsageError, match="smaller than the tokenizer's"):
        ready(tiny(text, model={"vocab_size": 3}, data={"tokenizer": tokenizer}), place)


@pytest.mark.parametrize("kind", [Unavailable, Conflict])
def test_a_study_that_the_machine_cannot_run_leaves_nothing(
    place: Home, text: Path, kind: type[UsageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run, machine: object) -> None:
        raise kind("not here")

    monkeypatch.setattr(prepare, "check", refuse)
    with pytest.raises(kind, match="not here"):
        ready(tiny(text), place)
    assert not place.root.exists()


def test_a_home_that_was_there_stays(place: Home, tmp_path: Path) -> None:
    place.ready()
    with pytest.raises(UsageError):
        ready(tiny(tmp_path / "missing.txt"), place)
    assert place.runs.is_dir()


def test_a_home_that_was_not_there_goes(place: Home, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ready(tiny(tmp_path / "missing.txt"), place)
    assert not place.root.exists()


def test_a_full_disk_at_the_start_leaves_no_run(home: Home, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(make_ready(home), home) as child:
        earlier = child.result()

    def full(*arguments: object) -> None:
        raise StorageError("run.json could not be written: No space left on device")

    monkeypatch.setattr(launcher.RunFolder, "write_process", full)
    with pytest.raises(StorageError, match="No space left"):
        start(make_ready(home), home)
    assert [path.name for path in home.runs.iterdir()] == [earlier.run]
    assert find(home, "last").result() == earlier
    assert list(Store(home).entries()) == [earlier.run]


def test_a_corpus_that_is_too_short_leaves_nothing(place: Home, text: Path) -> None:
    with pytest.raises(UsageError, match="use more text"):
        ready(tiny(text, model={"context_length": 4000}), place)
    assert not place.root.exists()


def test_room_is_wanted_for_the_ranks_of_this_machine_only(text: Path, place: Home) -> None:
    many = tiny(text, ranks=64, training={"batch_size": 64}, optimizations="data_parallel")
    with pytest.raises(UsageError, match="64 ranks need 64 cores"):
        ready(many, place)
    assert ready(many, place, ranks_here=1).run.ranks == 64


def test_cores_that_are_not_there_are_named(place: Home, text: Path) -> None:
    with pytest.raises(Unavailable, match=r"cores=\[4001\] is not possible: there is no core 4001 among 0"):
        ready(tiny(text, cores=[4001]), place)
    assert not place.root.exists()


def test_a_pinned_run_has_a_thread_for_each_core(place: Home, text: Path) -> None:
    last = max(usable_cores())
    assert ready(tiny(text, cores=last), place).run.threads == 1
    assert ready(tiny(text, cores=[last], threads=2), place).run.threads == 2
    free = ready(tiny(text), place).run
    assert (free.threads, free.cores) == (None, None)
    for wrong in ([], [0, 0], [-1], "all", True):
        with pytest.raises(UsageError, match="cores"):
            tiny(text, cores=wrong)
