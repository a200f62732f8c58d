from assay.analysis.comparison import analyse
from assay.report.page.compared.changes import changes
from support.comparisons import record
from support.drawn import words


def test_changes_are_labelled_in_percent() -> None:
    text = words(changes(analyse(record())))
    for piece in ("sdpa_attention", "−28.0 %", "+64.8 %", "tensors, peak", "step time"):
        assert piece in text


def test_every_panel_has_every_row() -> None:
    panels = changes(analyse(record()))
    assert [panel.title for panel in panels] == ["tensors, peak", "process, peak", "step time"]
    assert {len(panel.names) for panel in panels} == {5}
