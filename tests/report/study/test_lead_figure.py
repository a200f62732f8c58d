"""The one figure of a study: which kind answers its question, and what it draws."""

from collections.abc import Mapping
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.published import PublishedStudy
from assay.records.study import ComparisonRecord
from assay.report.kit.drawing import SMALL, alone
from assay.report.study.lead_figure import LeadFigure, lead_figure
from assay.report.study.view import StudyView
from support.comparisons import FACTORS, LABELS, TREATMENTS, record
from support.drawn import words
from support.factorials import compared, factorial
from support.swept import Figures, cut_short, factorial_record, recipe_parts


def lead(comparison: Comparison) -> LeadFigure:
    found = lead_figure(StudyView(comparison))
    assert found is not None
    return found


def untimed(made: ComparisonRecord) -> Comparison:
    return analyse(made.model_copy(update={"protocol": made.protocol.model_copy(update={"blocks": 0})}))


def rates(batches: int) -> Comparison:
    def of(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        return 1, 1, None if rate > 5e-3 else 2.3 + 0.1 * abs(rate / 1e-3 - 1)

    sizes = [8 + 4 * number for number in range(batches)]
    vary = {"training.learning_rate": [1e-3, 3e-4, 1e-2], "training.batch_size": sizes}
    return analyse(factorial_record(vary, of, seeds=1))


def ladder() -> Comparison:
    document: dict[str, Any] = {
        "document": "A document",
        "control": "A",
        "columns": [{"name": "Tokens per second", "metric": "tokens_per_second"}],
        "rows": [
            {"name": "A", "row": "baseline", "figures": [100]},
            {"name": "B", "row": "rung=fused", "figures": [150]},
            {"name": "C", "row": "rung=full", "figures": [600]},
        ],
    }
    rows = [{"rung": name} for name in ("plain", "fused", "full")]
    times = {"plain": 1.0, "fused": 0.8, "full": 0.4}
    published = PublishedStudy.model_validate(document)
    return compared(rows, lambda one: (1.0, times[one["rung"]], 1.0), published=published, kind="one_at_a_time")


def grid() -> Comparison:
    factors = {"model.n_layer": ("2", "4"), "optimizations": ("none", "lion", "sgd")}
    sizes = {"4": 1.7, "lion": 0.8}
    return compared(
        factorial(factors),
        lambda one: (sizes.get(one["model.n_layer"], 1.0) * sizes.get(one["optimizations"], 1.0), 1.0, 1.0),
    )


def test_a_sweep_of_learning_rates_has_its_valley() -> None:
    found = lead(rates(2))
    assert found.title == "Loss by learning rate"
    said = words(found.panels)
    assert "batch 8" in said
    assert "batch 12" in said
    axis = alone(found.panels[0]).axes[0]
    assert axis.get_xscale() == "log"
    assert [len(line.get_xdata()) for line in axis.lines] == [2, 1] * 2, "a rate that diverged has no point"


def test_a_valley_of_too_many_batches_is_no_figure() -> None:
    assert lead(rates(8)).title != "Loss by learning rate"


def test_a_target_has_its_race() -> None:
    made = record(seeds=3, target_loss=3.0, factors={**FACTORS, TREATMENTS[1]: (1.0, 1.0, 1.0, 9.0)})
    found = lead(analyse(made))
    assert found.title == "Time to a training loss of 3"
    said = words(found.panels)
    assert said.count("not reached") == 1
    assert "seconds of steps" in said
    assert len(alone(found.panels[0]).axes[0].patches) == len(TREATMENTS), "the baseline and all rows but one"
    assert "seconds" not in words(lead(untimed(made)).panels)


def test_two_factors_that_change_together_have_the_map() -> None:
    found = lead(grid())
    assert found.title == "Change of memory, and by how much changes do not add up"
    said = words(found.panels)
    for name in ("4 layers", "lion", "SGD"):
        assert name in said


def test_a_ladder_with_printed_speeds_has_its_climb() -> None:
    found = lead(ladder())
    assert found.title == "Tokens a second, as a multiple of the first rung's"
    axis = alone(found.panels[0]).axes[0]
    assert [round(bar.get_width(), 1) for bar in axis.patches] == [1.2, 2.5]
    diamonds = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "d"]
    assert diamonds == [1.5, 6.0]


def test_any_other_timed_study_has_memory_against_time() -> None:
    found = lead(analyse(record(seeds=3)))
    assert found.title == "Memory against time, from the baseline"
    said = words(found.panels)
    for label in ("baseline", *LABELS[:4]):
        assert label in said
    assert found.panels[0].width == SMALL


@pytest.mark.parametrize(("time", "scale"), [(3.0, "linear"), (18.0, "log")])
def test_a_much_longer_time_has_a_logarithmic_axis(time: float, scale: str) -> None:
    made = record(seeds=3, factors={**FACTORS, TREATMENTS[1]: (0.5, 0.5, time, 0.0)})
    assert alone(lead(analyse(made)).panels[0]).axes[0].get_xscale() == scale


def test_parts_in_some_of_their_combinations_have_their_effects_on_the_loss() -> None:
    found = lead(analyse(recipe_parts()))
    assert found.title == "Effect of each part on the loss"
    axis = alone(found.panels[0]).axes[0]
    points = [line.get_xdata()[0] for line in axis.lines if line.get_marker() not in ("", "None")]
    assert [one.get_text() for one in axis.get_yticklabels()] == ["lion", "width 64", "batch 16"]
    assert points[0] < points[1] < 0 < points[2]


def test_a_study_without_times_has_differences_of_losses() -> None:
    found = lead(untimed(record(seeds=3)))
    assert found.title == "Loss against the baseline's"
    said = words(found.panels)
    assert "difference of the validation loss, nats" in said
    assert all(label.split(" + ")[0] in said for label in LABELS)


def test_without_a_row_that_ended_there_is_none() -> None:
    assert lead_figure(StudyView(analyse(cut_short(record(seeds=3), ("", 0))))) is None
