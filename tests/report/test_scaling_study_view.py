"""The page of a study of scaling: its verdict, figures and tables, and the same bytes each time."""

from pathlib import Path

from assay.analysis.comparison import analyse
from assay.config import Home
from assay.records.study import ComparisonRecord
from assay.report.kit.view import render, write_page
from assay.report.scaling_study_view import FIGURES
from support.figures import drawn
from support.scaled import STUDY, scaled_record

HELD_OUT = STUDY.label(list(STUDY.combinations())[1])


def test_the_page_has_the_verdict_all_figures_and_how_numbers_are_made(tmp_path: Path) -> None:
    record = scaled_record(question="Is <b> escaped?")
    with drawn():
        page = render(analyse(record))
    for text in (
        "The law of the small runs predicted a run with 10",
        "inside its interval.</h1>",
        "Loss by compute",
        "Sizes at equal compute",
        "How each number is made",
        "every distinct weight; the tied embedding counts once",
        "900 of 1,000 held-out tokens",
        "Is &lt;b&gt; escaped?",
    ):
        assert text in page
    assert page.count("<svg") == len(FIGURES)
    assert "mathdefault" not in page
    assert not any(tag in page for tag in ("<script src", "<link", "<img", "src=")), "the page needs no network"
    read = ComparisonRecord.model_validate_json(record.model_dump_json())
    with drawn():
        assert write_page(analyse(read), Home(tmp_path)).read_text(encoding="utf-8") == page


def test_a_loss_outside_of_its_interval_leads_the_page() -> None:
    page = render(analyse(scaled_record(changes={HELD_OUT: {"val_loss": 9.0, "epoch_seconds": 1e-3}})))
    assert "but outside of its interval.</h1>" in page
    assert "saw the text more than 4 times" in page
