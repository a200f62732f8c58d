"""Archives of runs: what goes in comes out, equal records make equal bytes, and nothing in an archive is trusted."""

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.api.runs import import_archive
from assay.config import Home
from assay.errors import UsageError
from assay.store.archive import pack, unpack
from assay.store.sealed import seal_file

RUN = "20260101-000000-abcdef-0123"
FOLDER = f"runs/{RUN}"


@pytest.fixture
def full(home: Home) -> Home:
    folder = home.root / FOLDER
    (folder / "checkpoints/step-00000010").mkdir(parents=True)
    (folder / "checkpoints/step-00000010/weights").write_bytes(b"w" * 100)
    for name in ("run.json", "result.json"):
        (folder / name).write_bytes(seal_file('{\n "loss": 4.5\n}'))
    for name in ("events.jsonl", "worker.log", "lock", "process.json", ".making-result.json"):
        (folder / name).write_text("x\n")
    return home


@pytest.fixture
def archive(full: Home, tmp_path: Path) -> Path:
    path = tmp_path / "runs.tar.gz"
    pack(full, [full.root / FOLDER], path)
    return path


def files(home: Home) -> dict[str, bytes]:
    return {str(one.relative_to(home.root)): one.read_bytes() for one in home.root.rglob("*") if one.is_file()}


def test_records_come_out_as_they_went_in(full: Home, archive: Path, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    assert unpack(archive, other) == ([FOLDER], [])
    names = ("events.jsonl", "result.json", "run.json", "worker.log")
    assert files(other) == {f"{FOLDER}/{name}": (full.root / FOLDER / name).read_bytes() for name in names}
    assert unpack(archive, other) == ([], [FOLDER])


def test_checkpoints_go_along_if_they_are_asked_for(full: Home, tmp_path: Path) -> None:
    path, other = tmp_path / "runs.tar.gz", Home(tmp_path / "other")
    pack(full, [full.root / FOLDER], path, checkpoints=True)
    unpack(path, other)
    assert (other.root / FOLDER / "checkpoints/step-00000010/weights").read_bytes() == b"w" * 100


def test_equal_records_make_equal_bytes(full: Home, archive: Path, tmp_path: Path) -> None:
    copied = Home(tmp_path / "copied")
    shutil.copytree(full.root, copied.root)
    (copied.root / FOLDER / "run.json").touch()
    again = tmp_path / "again.tar.gz"
    pack(copied, [copied.root / FOLDER], again)
    assert again.read_bytes() == archive.read_bytes()


def test_a_run_that_differs_is_refused_and_stays(full: Home, archive: Path) -> None:
    (full.root / FOLDER / "result.json").write_bytes(seal_file('{\n "loss": 4.6\n}'))
    before = files(full)
    with pytest.raises(UsageError, match=r"result\.json differs"):
        unpack(archive, full)
    assert files(full) == before


def test_a_damaged_record_is_refused(full: Home, tmp_path: Path) -> None:
    record = full.root / FOLDER / "result.json"
    record.write_bytes(record.read_bytes().replace(b"4.5", b"4.6"))
    path, other = tmp_path / "runs.tar.gz", Home(tmp_path / "other")
    pack(full, [full.root / FOLDER], path)
    with pytest.raises(UsageError, match="is damaged: it was changed since it was written"):
        unpack(path, other)
    assert files(other) == {}


def test_an_archive_that_is_cut_off_anywhere_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    whole, other = archive.read_bytes(), Home(tmp_path / "other")
    cut = tmp_path / "cut.tar.gz"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(UsageError):
            unpack(cut, other)
    for place in range(20, len(whole)):
        cut.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UsageError):
            unpack(cut, other)
    assert files(other) == {}


def written(path: Path, *entries: tuple[str, Callable[[tarfile.TarInfo], object]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, change in entries:
            entry = tarfile.TarInfo(name)
            entry.size = 1
            change(entry)
            archive.addfile(entry, io.BytesIO(b"x") if entry.isreg() else None)
    return path


def of_type(kind: bytes, target: str) -> Callable[[tarfile.TarInfo], object]:
    def change(entry: tarfile.TarInfo) -> None:
        entry.type, entry.linkname, entry.size = kind, target, 0

    return change


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../outside/run.json",
        f"{FOLDER}/../../../x",
        f"{FOLDER}/.hidden",
        "runs/run.json",
        "store.sqlite",
        "data/corpus/tokens",
        f"{FOLDER}/" + "n" * 300,
    ],
)
def test_names_outside_of_runs_and_studies_are_refused(name: str, tmp_path: Path) -> None:
    path, home = written(tmp_path / "a.tar.gz", (name, lambda entry: None)), Home(tmp_path / "deep/home")
    with pytest.raises(UsageError, match="is no file of a run or study"):
        unpack(path, home)
    assert not home.root.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    path, home = written(tmp_path / "a.tar.gz", (f"{FOLDER}/run.json", of_type(kind, "/etc/passwd"))), Home(tmp_path)
    with pytest.raises(UsageError, match="is no file of a run or study"):
        unpack(path, home)


@pytest.mark.parametrize("content", [b"", b"not a tar file", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an archive of runs"):
        unpack(path, Home(tmp_path / "home"))


@pytest.mark.parametrize("name", ["nothing", "n" * 300, "folder"])
def test_a_file_that_cannot_be_read_is_refused_and_makes_no_home(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be read: "):
        import_archive(tmp_path / name, home=tmp_path / "home")
    assert not (tmp_path / "home").exists()
