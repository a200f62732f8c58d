"""What a reader sees of the studies that were run is what the present package makes of their records."""

from pathlib import Path
from typing import Any

import pytest

from support.docs import DOCS, program

FOLDERS = sorted(
    (one.parent for one in (DOCS / "studies").glob("*/README.md")),
    key=lambda folder: sum(one.stat().st_size for one in folder.iterdir()),
)
LARGEST = 3 << 20
"""Bytes that all studies may come to."""


@pytest.fixture(scope="module")
def pages() -> Any:
    return program("study_pages")


def current(pages: Any, folder: Path) -> None:
    assert not pages.stale(folder, pages.readable(folder)), "run `python docs/study_pages.py`"


def test_the_smallest_study_is_current(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    current(pages, next(one for one in FOLDERS if (one / pages.ARCHIVE).exists()))


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: str(one.name))
def test_every_study_is_current(pages: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    current(pages, folder)


def test_a_page_is_written_from_a_record(pages: Any, tmp_path: Path) -> None:
    folder = DOCS / "studies" / "wikitext-recipe-gradients"
    assert pages.main(["--pages", str(tmp_path), folder.name]) == 0
    assert sorted(one.name for one in (tmp_path / folder.name).iterdir()) == sorted(["page.html", *pages.PAGE[1:]])
    assert (tmp_path / folder.name / "page.html").read_text().startswith("<!doctype html>")


def test_files_that_differ_or_are_missing_or_too_many_are_named(pages: Any, tmp_path: Path) -> None:
    for name, content in {pages.ARCHIVE: b"", "equal": b"1", "other": b"1", "beyond": b"1", "a.png": b"1"}.items():
        (tmp_path / name).write_bytes(content)
    made = {"equal": b"1", "other": b"2", "missing": b"1", "a.png": b"2"}
    assert pages.stale(tmp_path, made) == ["beyond", "missing", "other"]


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
    (tmp_path / "README.md").write_bytes(here)
    assert pages.stale(tmp_path, {"README.md": there}) == (["README.md"] if differ else [])


def test_a_cell_of_a_table_keeps_its_bars(pages: Any) -> None:
    from assay.report.kit.blocks import Table

    made = pages.markdown_block(Table.of(("row", "ms"), [("a|b", "1")], right=("ms",)))
    assert made.splitlines() == ["| row | ms |", "| --- | ---: |", "| a&#124;b | 1 |"]


def test_each_study_has_what_its_readme_is_made_from(pages: Any) -> None:
    for folder in FOLDERS:
        names = {one.name for one in folder.iterdir()}
        assert len(names & {pages.ARCHIVE, pages.POINTS}) == 1
        assert pages.MARK in (folder / "README.md").read_text(encoding="utf-8")


def test_studies_are_small() -> None:
    """The repository is light because of them: pages come from `make docs`."""
    assert sum(one.stat().st_size for one in (DOCS / "studies").rglob("*") if one.is_file()) <= LARGEST
