"""The answer of a study of scaling as text: sentences that a reader can check against the tables."""

from assay.records.status import Status
from assay.report.blocks import Table
from assay.report.scaled.answer import answer_report, answer_values, cautions, verdict
from assay.scaling.studied.answer import answer
from support.scaled import STUDY, scaled_record

HELD_OUT = STUDY.label(list(STUDY.combinations())[1])


def test_the_verdict_says_what_was_predicted_and_what_came() -> None:
    found = answer(scaled_record(), draws=20)
    (predicted,) = found.predictions
    first, *rates = verdict(found)
    for text in (f"predicts a loss of {predicted.loss:.4f}", f"It reached {predicted.point.loss:.4f}", "3 layers × 64"):
        assert text in first
    assert rates[0].endswith("the rule's learning rate is better than half and twice of it.")


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
