"""Parts against the whole: each bar begins where the one above ends, and the last is the measured change."""

import pytest

from assay.analysis.comparison import analyse
from assay.report.page.panels import alone
from assay.report.study.factors.parts import part_panels
from assay.report.study.view import StudyView
from support.comparisons import FACTORS, TREATMENTS, record
from support.drawn import words


def test_the_staircase_ends_at_the_sum_and_the_last_bar_is_the_whole() -> None:
    panels = part_panels(StudyView(analyse(record(seeds=3))))
    (panel,) = [one for one in panels if one.title.endswith("tensors, peak")]
    bars = alone(panel).axes[0].patches
    parts, whole = bars[:3], bars[-1]
    ends = [bar.get_x() + bar.get_width() for bar in parts]
    assert [bar.get_x() for bar in parts] == pytest.approx([0, *ends[:-1]])
    assert bars[3].get_width() == pytest.approx(ends[-1])
    assert whole.get_width() == pytest.approx(100 * (FACTORS[TREATMENTS[4]][0] - 1), abs=0.01)


def test_every_metric_in_bytes_or_seconds_has_a_panel_with_all_names() -> None:
    panels = part_panels(StudyView(analyse(record())))
    assert [one.title.rpartition(": ")[2] for one in panels] == ["tensors, peak", "process, peak", "step time"]
    text = words(panels)
    for name in ("sdpa_attention", "bf16_mixed", "activation_checkpointing", "sum of the parts", "all together"):
        assert text.count(name) >= 3


def test_without_a_stack_there_are_no_parts() -> None:
    assert part_panels(StudyView(analyse(record(treatments=TREATMENTS[:2])))) == ()
