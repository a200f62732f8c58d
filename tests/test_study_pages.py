"""Pages of studies that were run are what the present package makes of their archives."""

import re
from pathlib import Path
from typing import Any

import pytest

from support.docs import DOCS, program

ARCHIVES = sorted((DOCS / "studies").glob("*/study.tar.gz"), key=lambda one: one.stat().st_size)


@pytest.fixture(scope="module")
def pages() -> Any:
    return program("study_pages")


def current(pages: Any, archive: Path) -> None:
    assert not pages.stale(archive, pages.made(archive)), "run `python docs/study_pages.py`"


def test_the_smallest_page_is_current(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    current(pages, ARCHIVES[0])


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES[1:], ids=lambda one: str(one.parent.name))
def test_every_page_is_current(pages: Any, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    current(pages, archive)


def test_files_that_differ_or_are_missing_or_too_many_are_named(pages: Any, tmp_path: Path) -> None:
    for name, content in {"study.tar.gz": b"", "equal": b"1", "other": b"1", "beyond": b"1"}.items():
        (tmp_path / name).write_bytes(content)
    made = {"equal": b"1", "other": b"2", "missing": b"1"}
    assert pages.stale(tmp_path / "study.tar.gz", made) == ["beyond", "missing", "other"]


@pytest.mark.parametrize(
    ("here", "there", "differ"),
    [
        (b"sdpa,-0.020560671921096105,3e-17", b"sdpa,-0.020560671921099498,-1e-16", False),
        (b"sdpa,-0.0205606719", b"sdpa,-0.0205606711", True),
        (b"sdpa,1024", b"sdpa,1025", True),
    ],
)
def test_the_last_digits_of_figures_may_differ(
    pages: Any, tmp_path: Path, here: bytes, there: bytes, differ: bool
) -> None:
    (tmp_path / "rows.csv").write_bytes(here)
    assert pages.stale(tmp_path / "study.tar.gz", {"rows.csv": there}) == (["rows.csv"] if differ else [])


def test_all_folders_have_the_same_files(pages: Any) -> None:
    for archive in ARCHIVES:
        assert sorted(one.name for one in archive.parent.iterdir()) == sorted([*pages.KEPT, pages.ARCHIVE])


def test_the_readme_says_why_a_study_has_no_archive() -> None:
    folders = {one.name for one in (DOCS / "studies").iterdir() if one.is_dir()}
    without = folders - {one.parent.name for one in ARCHIVES}
    text = (DOCS / "studies" / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Studies without an archive\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert {name for name in folders if f"`{name}`" in section} == without
