"""The answer of a study of scaling, and its last lines."""

from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.report.kit.blocks import Table
from assay.report.scaling_study import answer_report, answer_values, cautions, closing, verdict
from assay.scaling.scaling_study import ScalingAnswer, answer
from support.scaled import STUDY, scaled_record

HELD_OUT = STUDY.label(list(STUDY.combinations())[1])


def test_the_verdict_says_what_was_predicted_and_what_came() -> None:
    found = answer(scaled_record(), draws=20)
    (predicted,) = found.predictions
    first, run, rates = verdict(found)
    assert first.startswith("The law of the small runs predicted a run with 10 × their compute within ")
    assert first.endswith(", inside its interval.")
    assert run == (
        f"The run of 3 layers × 64 was predicted to reach {predicted.loss:.4f} and reached {predicted.point.loss:.4f}."
    )
    assert rates == "The rule's learning rate is better than half and twice of it at all 2 tested sizes."


def test_a_better_rate_is_held_against_the_margin() -> None:
    label = "2e+10 FLOPs, width 16, 2 × rate"
    found = answer(scaled_record(noise=0.0, changes={label: {"val_loss": 1.0}}), draws=5)
    assert "2 × the rule's learning rate is better by" in list(verdict(found))[-1]
    assert "not within the margin of 0.01" in list(verdict(found))[-1]


def test_every_run_is_in_the_table_and_values_are_for_programs() -> None:
    found = answer(scaled_record(), draws=5)
    tables = [one for one in answer_report(found) if isinstance(one, Table)]
    assert max(len(one.rows) for one in tables) == 35
    values = answer_values(found)
    assert len(values["points"]) == 35
    assert values["predictions"][0]["inside"] is True


def test_cautions_name_runs_that_are_missing_short_or_repeat_their_text() -> None:
    label = "3.2e+11 FLOPs, width 16"
    changes = {label: {"status": Status.DIVERGED, "val_loss": None}, HELD_OUT: {"epoch_seconds": 1e-3}}
    said = list(cautions(answer(scaled_record(changes=changes), draws=5)))
    assert f"{label}, seed 0" in said[0]
    assert "3 × 64, 3.2e12 FLOPs saw the text more than 4 times" in said[1]
    assert not any("fewer than" in one for one in said)


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
    assert f"predicted to reach {predicted.loss:.4f}" in told["result"][0]
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
