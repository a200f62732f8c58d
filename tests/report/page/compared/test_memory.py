from assay.analysis.comparison import analyse
from assay.records.prediction import Predicted
from assay.report.page.compared.memory import categories, memory
from assay.report.page.panels import alone
from support.comparisons import TREATMENTS, record
from support.drawn import words


def test_each_row_has_its_layers_on_one_scale() -> None:
    panels = memory(analyse(record()))
    assert [panel.title for panel in panels] == ["baseline", *TREATMENTS]
    axes = [alone(panel).axes[0] for panel in panels]
    assert len({axis.get_ylim() for axis in axes}) == 1
    assert {len(axis.collections) for axis in axes} == {2}


def test_the_peak_its_instant_and_the_phases_are_named() -> None:
    text = words(memory(analyse(record()))[:1])
    assert "65.1 MiB in forward: aten.mm (head)" in text
    assert [name for name in ("forward", "backward", "update") if f"{name} " in f"{text} "] == [
        "forward",
        "backward",
        "update",
    ]


def test_the_measured_peak_is_a_line() -> None:
    (line,) = [one for one in alone(memory(analyse(record()))[0]).axes[0].lines if one.get_linestyle() == "--"]
    assert line.get_ydata()[0] == 65.0


def test_a_category_has_one_colour_although_a_row_lacks_it() -> None:
    made = analyse(record())
    assert categories(made) == ("weights", "saved for backward")
    assert categories(analyse(record(treatments=TREATMENTS[:1]))) == categories(made)


def test_older_records_have_no_timeline() -> None:
    older = {"predicted": Predicted(tensors_peak_bytes=10**6)}
    made = record(changes=dict.fromkeys(("baseline", "baseline (again)", *TREATMENTS), older))
    assert memory(analyse(made)) == ()
    assert categories(analyse(made)) == ()
