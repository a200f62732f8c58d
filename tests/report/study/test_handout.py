"""A report to hand in: its parts, its formats, and what happens without a browser."""

from pathlib import Path

import pytest

from assay.analysis.comparison import analyse
from assay.errors import UsageError
from assay.report.study.handout import handout, markdown, write_handout
from assay.report.study.view import StudyView
from support.browsers import chromium
from support.comparisons import record
from support.figures import drawn

PNG, SVG = b"\x89PNG", b"<?xml"


@pytest.fixture(scope="module")
def study() -> StudyView:
    """A study of three seeds with a question."""
    return StudyView(analyse(record(seeds=3, name="ladder", question="What does each rung add?")))


def test_it_has_question_answer_table_two_figures_method_and_limits(study: StudyView) -> None:
    found = handout(study)
    assert found.question == "What does each rung add?"
    assert found.sentences == study.sentences
    assert [one.name for one in found.pictures] == ["answer", "changes"]
    assert len(found.table.rows) == 1 + len(study.comparison.rows)
    assert found.parts[0].heading == "Method"


def test_markdown_shows_each_figure_and_the_table(study: StudyView) -> None:
    text = markdown(handout(study), "mine-")
    assert text.startswith("<!-- a report of assay -->\n\n# ladder\n\n> What does each rung add?\n\n**")
    assert "(mine-answer.png)" in text
    assert "(mine-changes.png)" in text
    assert "| baseline |" in text


@pytest.mark.parametrize("form", ["md", "html"])
def test_figures_stand_beside_it_as_png_and_svg(study: StudyView, form: str, tmp_path: Path) -> None:
    with drawn():
        path = write_handout(study, tmp_path / f"mine.{form}", form)
    assert study.headline in path.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for name in ("mine-answer", "mine-changes"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
        assert (tmp_path / f"{name}.svg").read_bytes().startswith(SVG)


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_file_that_is_no_report_stays(study: StudyView, form: str, tmp_path: Path) -> None:
    mine = tmp_path / f"notes.{form}"
    mine.write_text("my notes")
    for path in (mine, tmp_path, tmp_path / "missing" / "one.md"):
        with pytest.raises(UsageError):
            write_handout(study, path, form)
    assert mine.read_text() == "my notes"
    assert list(tmp_path.iterdir()) == [mine]
    again = tmp_path / f"report.{form}"
    write_handout(study, again, form)
    write_handout(study, again, form)


def test_a_figure_of_somebody_else_is_not_replaced(study: StudyView, tmp_path: Path) -> None:
    mine = tmp_path / "mine-answer.png"
    mine.write_text("a holiday")
    with pytest.raises(UsageError, match=r"mine-answer\.png is there without its report, and would be replaced"):
        write_handout(study, tmp_path / "mine.md", "md")
    assert mine.read_text() == "a holiday"
    assert [one.name for one in tmp_path.iterdir()] == [mine.name]


def test_without_a_browser_a_pdf_is_refused_before_anything_is_written(
    study: StudyView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ASSAY_CHROMIUM", raising=False)
    with pytest.raises(UsageError, match="none was found; install one"):
        write_handout(study, tmp_path / "mine.pdf", "pdf")
    assert not list(tmp_path.iterdir())


def test_a_browser_that_does_not_print_is_named(
    study: StudyView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("ASSAY_CHROMIUM", str(broken))
    with pytest.raises(UsageError, match="did not print the report"):
        write_handout(study, tmp_path / "mine.pdf", "pdf")


def test_a_browser_prints_it(study: StudyView, tmp_path: Path) -> None:
    if chromium() is None:
        pytest.skip("no Chromium is found")
    path = write_handout(study, tmp_path / "mine.pdf", "pdf")
    assert path.read_bytes().startswith(b"%PDF")
    assert not list(tmp_path.glob("*.html"))
