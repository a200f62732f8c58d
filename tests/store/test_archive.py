"""Archives in both compressions: what goes in comes out, and equal records make equal bytes."""

import gzip
import lzma
import shutil
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.store import archive
from assay.store.archive import UNREADABLE, compress_into, is_known, open_compressed, pack
from assay.store.arrivals import unpack
from support.children import make_ready
from support.records import made, result_of

CONTENT = bytes(range(256)) * 300 + b"the end"


def write(path: Path, content: bytes = CONTENT) -> Path:
    with path.open("wb") as raw, compress_into(raw, path) as stream:
        stream.write(content)
    return path


def read(path: Path) -> bytes:
    with open_compressed(path) as stream:
        return b"".join(iter(lambda: stream.read(1000), b""))


@pytest.mark.parametrize(("name", "reference"), [("a.tar.gz", gzip.decompress), ("a.tar.xz", lzma.decompress)])
def test_content_comes_out_as_it_went_in(name: str, reference: object, tmp_path: Path) -> None:
    path = write(tmp_path / name)
    assert read(path) == CONTENT == reference(path.read_bytes())  # type: ignore[operator]
    assert write(tmp_path / f"again-{name}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.xz"])
def test_a_file_that_is_cut_off_or_damaged_is_an_error(name: str, tmp_path: Path) -> None:
    whole = write(tmp_path / name).read_bytes()
    cut = tmp_path / "cut"
    for place in range(0, len(whole), 7):
        cut.write_bytes(whole[:place])
        if place:
            with pytest.raises(UNREADABLE):
                read(cut)
        if name.endswith(".xz"):
            cut.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(UNREADABLE):
                read(cut)


def test_bytes_behind_the_end_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar.xz")
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(UNREADABLE, match="bytes follow its end"):
        read(path)


def test_decompression_has_a_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MOST_MEMORY", 1 << 20)
    with pytest.raises(UNREADABLE, match=r"[Mm]emory"):
        read(write(tmp_path / "a.tar.xz"))


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
