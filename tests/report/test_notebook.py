from matplotlib.figure import Figure

from assay.analysis.comparison import analyse
from assay.analysis.factors.layout import row_names
from assay.api.result_types import StudyResult
from assay.report.kit.blocks import Facts, Table
from assay.report.kit.drawing import LIGHT, PRINTED
from assay.report.kit.view import html
from support.comparisons import record


def test_blocks_become_tables_and_paragraphs_with_escaped_texts() -> None:
    text = html([Facts((("run", "<b>"),)), Table.of(("a", "b"), [("1", "2")], ["b"]), "x & y", ""])
    assert "&lt;b&gt;" in text
    assert "<p>x &amp; y</p>" in text
    assert '<th style="text-align:right">b</th>' in text
    assert '<td style="text-align:right">2</td>' in text
    assert text.count("<table>") == 2


def test_figures_follow_as_images() -> None:
    figure = Figure()
    figure.subplots().plot([1, 2])
    text = html([], None, figure)
    assert text.startswith('<img src="data:image/png;base64,')


def test_a_study_in_a_notebook_has_every_row_and_the_changes() -> None:
    found = StudyResult.from_value(analyse(record()))
    text = found._repr_html_()
    assert all(label in text for label in row_names(found.record).values())
    assert "<img" in text
    assert found.to_frame().treatment.tolist()[0] == "baseline"


def test_a_plot_has_printed_colours_only() -> None:
    found = StudyResult.from_value(analyse(record()))
    for name in ("changes", "losses", "predictions"):
        figure = found.plot(name)
        assert figure is not None
        used = {line.get_color() for axis in figure.axes for line in axis.lines if line.get_linestyle() != "None"}
        assert used <= {*LIGHT, *PRINTED.values()}
