"""Archives of runs: what goes in comes out, equal records make equal bytes, and only known names go in."""

import shutil
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.store.archive import is_known, pack
from assay.store.arrivals import unpack
from support.children import make_ready
from support.records import made, result_of


@pytest.fixture
def run(home: Home) -> Path:
    """The folder of a run with a checkpoint, and with files that stay where they are."""
    folder = made(home, make_ready(home))
    folder.write_result(result_of(home, folder.id))
    (folder.checkpoints / "step-00000010").mkdir(parents=True)
    (folder.checkpoints / "step-00000010/model.safetensors").write_bytes(b"w" * 100)
    for name in ("events.jsonl", "worker.log", "lock", "process.json", ".making-result.json", "evil.py"):
        (folder.path / name).write_text("x\n")
    return folder.path


def nothing(folder: Path) -> list[None]:
    return []


def files(home: Home) -> dict[str, bytes]:
    return {str(one.relative_to(home.root)): one.read_bytes() for one in home.root.rglob("*") if one.is_file()}


def test_records_come_out_as_they_went_in(home: Home, run: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "runs.tar.gz", Home(tmp_path / "other")
    pack(home, [run], path)
    folder = f"runs/{run.name}"
    assert unpack(path, other, nothing) == ([folder], [], [])
    names = ("events.jsonl", "result.json", "run.json", "worker.log")
    assert files(other) == {f"{folder}/{name}": (run / name).read_bytes() for name in names}
    assert unpack(path, other, nothing) == ([], [folder], [])


def test_a_file_that_is_no_archive_stays(home: Home, run: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.pdf"
    thesis.write_bytes(b"%PDF")
    with pytest.raises(UsageError, match="is there and is no archive"):
        pack(home, [run], thesis)
    assert thesis.read_bytes() == b"%PDF"


def test_checkpoints_go_along_if_they_are_asked_for(home: Home, run: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "runs.tar.gz", Home(tmp_path / "other")
    pack(home, [run], path, checkpoints=True)
    unpack(path, other, nothing)
    place = other.runs / run.name / "checkpoints/step-00000010/model.safetensors"
    assert place.read_bytes() == b"w" * 100


def test_equal_records_make_equal_bytes(home: Home, run: Path, tmp_path: Path) -> None:
    copied, first, again = Home(tmp_path / "copied"), tmp_path / "first.tar.gz", tmp_path / "again.tar.gz"
    pack(home, [run], first)
    shutil.copytree(home.root, copied.root)
    (copied.runs / run.name / "run.json").touch()
    pack(copied, [copied.runs / run.name], again)
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("kind", "inside", "known"),
    [
        ("runs", "result.json", True),
        ("runs", "checkpoints/step-00000010/state.json", True),
        ("runs", "checkpoints/step-00000010/state.py", False),
        ("runs", "comparison.json", False),
        ("reports", "comparison.json", True),
        ("reports", "memory.parquet", True),
        ("reports", "waves/0003.jsonl", True),
        ("reports", "run.json", False),
        ("data", "run.json", False),
    ],
)
def test_an_archive_has_files_of_known_names(kind: str, inside: str, known: bool) -> None:
    assert is_known(kind, inside) is known
