"""Archives in gzip and in xz: both come out as they went in, and damage anywhere is an error, not a shorter file."""

import gzip
import lzma
from pathlib import Path

import pytest

from assay.store import compression
from assay.store.compression import UNREADABLE, compress_into, open_compressed

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
    monkeypatch.setattr(compression, "_MOST_MEMORY", 1 << 20)
    with pytest.raises(UNREADABLE, match=r"[Mm]emory"):
        read(write(tmp_path / "a.tar.xz"))
