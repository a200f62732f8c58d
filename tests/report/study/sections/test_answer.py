"""The last lines of a comparison."""

import re
from typing import Any

from assay.analysis.comparison import Comparison, analyse
from assay.config import load
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.report.study.view import StudyView
from support.comparisons import TREATMENTS, record
from support.swept import cut_short


def lines(comparison: Comparison) -> dict[str, list[str]]:
    """Texts of the last lines by label."""
    found: dict[str, list[str]] = {}
    for label, text in StudyView(comparison).closing():
        found.setdefault(label, []).append(text)
    return found


def test_they_have_the_answer_the_baseline_and_what_to_run() -> None:
    found = lines(analyse(record(seeds=3)))
    assert list(found) == ["result", "against", "next"]
    assert found["result"][0].startswith("Turn on sdpa_attention: steps take 12 % less time and 28 % less memory, at ")
    assert "the baseline: tensors, peak 65.0 MiB" in found["against"][0]
    assert found["against"][0].endswith("3 runs of each over 3 seeds")
    assert found["next"] == ["assay train demo --with sdpa_attention    trains with this choice"]


def test_too_few_seeds_lead_to_a_comparison_with_more() -> None:
    (hint,) = [one for one in lines(analyse(record(seeds=1, processes=3)))["next"] if "compare" in one]
    assert hint.startswith("assay compare demo --with ")
    assert "--with bf16_mixed" in hint
    assert hint.endswith("--seeds 3    tells whether losses are as good")


def test_missing_and_failed_rows_come_first() -> None:
    failed = {TREATMENTS[0]: {"status": Status.FAILED, "reason": "division by zero"}}
    made = record(seeds=3, changes=failed, ending=StudyEnding.INTERRUPTED)
    first, second, *_ = lines(analyse(made))["next"]
    assert first == f"assay study resume {made.id}    does the runs that have no result"
    assert second.startswith("assay runs show ")
    assert second.endswith("sdpa_attention: failed: division by zero")


def test_nothing_finished_is_said() -> None:
    found = lines(analyse(record().model_copy(update={"cells": (), "rounds": ()})))
    assert found["result"] == ["Nothing has finished, so nothing can be compared."]
    assert "against" not in found


def test_a_study_that_a_limit_of_time_ended_is_counted_as_it_ran() -> None:
    found = lines(analyse(cut_short(record(seeds=3), ("sdpa_attention", 0))))
    assert found["against"][0].endswith("at most 1 of 3 runs of each over 1 of 3 seeds")
    assert "whether the loss of sdpa_attention" in found["result"][0]
    assert "is as good, with fewer than three seeds" in found["result"][0]
    assert "resume" in found["next"][0]


def test_rows_that_a_person_stopped_are_no_answer_and_the_reason_is_said() -> None:
    made = cut_short(record(seeds=3), ("sdpa_attention", 0)).model_copy(update={"ending": StudyEnding.INTERRUPTED})
    (said,) = lines(analyse(made))["result"]
    assert said.startswith("Nothing has all its runs yet, so nothing is chosen")


def test_a_limit_of_time_before_the_first_row_is_said() -> None:
    (said,) = lines(analyse(cut_short(record(seeds=3), ("", 0))))["result"]
    assert said.startswith("Nothing has finished, so nothing can be compared. The limit of time ended the study ")


def priced(seconds: float, **more: Any) -> str:
    changes = {"baseline": {"first_step_seconds": 0.1}, "sdpa_attention": {"first_step_seconds": seconds}}
    return lines(analyse(record(seeds=3, changes=changes, **more)))["result"][0]


def test_a_longer_first_step_is_said_with_the_steps_that_earn_it_back() -> None:
    said = priced(0.9, base=load("demo", ["training.steps=300"]))
    assert re.search(r" sdpa_attention pays after 1\d\d steps: its first step takes 80\d ms longer; ", said), said


def test_a_first_step_that_this_run_does_not_earn_back_is_said() -> None:
    said = priced(0.9)
    assert re.search(
        r"sdpa_attention pays after 1\d\d steps, beyond the end of this run: its first step takes 80\d ms", said
    )


def test_a_saving_that_cannot_be_told_is_never_said_to_pay() -> None:
    assert "pay" not in priced(0.9, noise=0.3)
    assert "pay" not in priced(0.12)
