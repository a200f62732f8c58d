"""The last lines of a study of scaling."""

from assay.records.study import StudyEnding
from assay.report.closing.scaling import closing
from assay.scaling.studied.answer import ScalingAnswer, answer
from support.scaled import scaled_record


def lines(found: ScalingAnswer) -> dict[str, list[str]]:
    """Texts of the last lines by label."""
    told: dict[str, list[str]] = {}
    for label, text in closing(found):
        told.setdefault(label, []).append(text)
    return told


def test_they_say_what_came_out_against_what_and_what_to_run() -> None:
    found = answer(scaled_record(), draws=5)
    told = lines(found)
    assert list(told) == ["result", "against", "next"]
    (predicted,) = found.predictions
    assert f"predicts a loss of {predicted.loss:.4f}" in told["result"][0]
    lowest = min(one.loss for one in found.fitted)
    assert told["against"][0].startswith(f"30 fitted runs of 1e10 to 3.2e11 FLOPs, whose lowest loss is {lowest:.4f}")
    assert told["against"][0].endswith("as C^0.49 in Hoffmann et al. 2022")
    # The held-out run has 3.2e12 FLOPs, and the suggested budget ten times as many.
    first, second = told["next"]
    assert first.startswith(f"assay scaling optimal --flops 3.2e13 --points {found.record.id} ")
    assert second.startswith(f"assay scaling points {found.record.id} ")


def test_a_study_that_was_stopped_is_resumed_first() -> None:
    found = answer(scaled_record(ending=StudyEnding.INTERRUPTED), draws=5)
    assert lines(found)["next"][0].startswith(f"assay study resume {found.record.id} ")
