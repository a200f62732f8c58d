"""Sections on the choice of a row: their sentences, tables, values and figures."""

import json
import random
from collections.abc import Mapping
from math import log
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.status import Status
from assay.records.study import Curve, Halving, StudyEnding
from assay.report.comparison.figures import FIGURES
from assay.report.kit.blocks import Table
from assay.report.kit.drawing import alone
from assay.report.kit.view import no_break, render
from assay.report.study.sections import Filled
from assay.report.study.sections.answer import closing
from assay.report.study.view import StudyView
from support.comparisons import LABELS, TREATMENTS, record
from support.drawn import drawing
from support.figures import drawn
from support.swept import Figures, cut_short, factorial_record, in_two_sizes


def sections(comparison: Comparison) -> dict[str, Filled]:
    return {one.section.name: one for one in StudyView(comparison).sections}


def sentences(comparison: Comparison) -> list[str]:
    return [str(block) for block in sections(comparison)["answer"].blocks]


def said_of(comparison: Comparison) -> str:
    return " ".join(sentences(comparison))


def table(one: Filled) -> dict[str, tuple[str, ...]]:
    """Rows of the section's first table, by their first text."""
    first = next(block for block in one.blocks if isinstance(block, Table))
    return {row[0]: row for row in first.rows}


def lion(loss: float, step: float = 0.8) -> Comparison:
    """A study of Lion with a loss of its own against 2.4."""

    def of(levels: Mapping[str, str]) -> Figures:
        return (1, step, loss) if levels["optimizations"] == "lion" else (1, 1, 2.4)

    return analyse(factorial_record({"optimizations": ["none", "lion"]}, of))


@pytest.fixture(scope="module")
def whole() -> Comparison:
    lost = {TREATMENTS[2]: {"status": Status.OUT_OF_MEMORY, "reason": "out of memory in step 1"}}
    weights = {"step_seconds": 1.0, "val_loss": 5.0}
    return analyse(record(seeds=3, weights=weights, ranking="walsh-2023", changes=lost))


def test_the_answer_names_what_to_choose_its_price_and_what_cannot_be_told(whole: Comparison) -> None:
    assert sentences(whole) == [
        "Turn on sdpa_attention: steps take 12 % less time and 28 % less memory, at the same loss.",
        "At the same loss, gradient_accumulation is the lightest: 59 % less memory, but 5 % more time.",
        "activation_checkpointing ran out of memory.",
        "The study cannot tell changes of the step time below 0.7 %.",
    ]


@pytest.mark.parametrize(
    ("comparison", "says"),
    [
        (lion(2.4), "Turn on lion: steps take 20 % less time and about the same memory, at the same loss."),
        (lion(2.5), "Nothing is shown to save time or memory at the same loss. Lion takes 20 % less time, "),
        (lion(2.5), "at a worse loss."),
        (lion(2.3), "Turn on lion: steps take 20 % less time and about the same memory, at a lower loss."),
        (lion(2.3, step=1.0), "The loss is lowest with lion: 0.1 nats below the baseline."),
        (lion(2.4, step=1.0), "Nothing is shown to save time or memory at the same loss."),
    ],
)
def test_the_answer_is_another_for_another_loss(comparison: Comparison, says: str) -> None:
    assert says in said_of(comparison)


def test_with_one_seed_the_answer_says_that_losses_cannot_be_told() -> None:
    said = sentences(analyse(record(seeds=1, processes=3)))[-1]
    assert said.startswith("The study cannot tell whether the loss of sdpa_attention, ")
    assert "is as good, with fewer than three seeds" in said


def test_a_row_is_said_to_save_what_it_saves() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return (0.5, 1.1, 2.5) if levels["optimizations"] == "lion" else (1, 1, 2.4)

    said = sentences(analyse(factorial_record({"optimizations": ["none", "lion"]}, of)))
    assert "Lion takes half the memory, but at a worse loss." in said, "its step is longer"
    said = sentences(
        analyse(
            factorial_record(
                {"optimizations": ["none", "lion", "sgd"]},
                lambda one: of(one) if "sgd" not in one.values() else (0.4, 1, 2.6),
            )
        )
    )
    assert "SGD and lion save time or memory, but at a worse loss." in said


def test_a_row_with_a_worse_loss_that_saves_next_to_nothing_is_not_said_to_save() -> None:
    said = sentences(
        analyse(
            factorial_record(
                {"optimizations": ["none", "lion"]},
                lambda one: (0.999, 1.1, 2.5) if "lion" in one.values() else (1, 1, 2.4),
            )
        )
    )
    assert said[1] == "Lion has a worse loss."


def test_rows_that_are_as_light_are_named_together() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return ({"none": 1, "sgd": 0.5, "adafactor": 0.5}.get(levels["optimizations"], 0.7), 1, 2.4)

    vary = {"optimizations": ["none", "sgd", "adafactor", "lion"]}
    comparison = analyse(factorial_record(vary, of, noise=0.0))
    first, second, *_ = sentences(comparison)
    assert first.startswith("Turn on adafactor: it takes half the memory and about the same time, at the same loss")
    assert second == "SGD may be as light."
    assert StudyView(comparison).values()["sections"]["answer"]["as_light"] == ["sgd"]


def test_a_limit_of_time_is_in_the_answer() -> None:
    choice, limit = sentences(analyse(cut_short(record(seeds=3), ("sdpa_attention", 0))))
    assert choice.startswith("Nothing") or "sdpa_attention" in choice
    assert limit.startswith("The limit of time ended the study before 18 of 24 runs could begin; it cannot tell ")


def test_a_stated_target_is_in_the_answer() -> None:
    first = sentences(analyse(record(seeds=3, target_loss=3.0)))[0]
    assert first == "sdpa_attention reaches a training loss of 3 first, in 88 % of the baseline's time."
    none = sentences(analyse(record(seeds=3, target_loss=0.1)))[0]
    assert none == "Nothing reaches a training loss of 0.1 for good at every seed."


def test_a_fast_row_with_a_worse_loss_is_called_so_beside_its_speed() -> None:
    row = table(sections(lion(2.5))["equivalence"])["lion"]
    assert row[1].startswith("−2")
    assert row[3] == "faster, but worse by more than 0.01"
    assert (
        "not shown to be as good (too few seeds)"
        in table(sections(analyse(record(seeds=1, processes=3)))["equivalence"])["bf16_mixed"][3]
    )


def test_the_front_shows_rows_that_did_not_finish_and_who_dominates(whole: Comparison) -> None:
    rows = table(sections(whole)["pareto_front"])
    assert rows["sdpa_attention"][-1] == "on the front"
    assert rows["baseline"][-1].startswith("dominated by sdpa_attention")
    assert rows["activation_checkpointing"][1:] == ("–", "–", "–", "out of memory in step 1")


def test_censored_runs_are_counted_in_the_table_of_times_to_the_target() -> None:
    rows = table(sections(analyse(record(seeds=3, target_loss=2.3)))["target_loss"])
    assert rows["baseline"][1].endswith("not within 60")
    assert rows["baseline"][3] == "unknown: a run did not reach it"


def test_rankings_have_the_formula_and_its_flaw(whole: Comparison) -> None:
    texts = [block for block in sections(whole)["ranking"].blocks if isinstance(block, str)]
    assert any("(step time 17 %, validation loss 83 %)" in text for text in texts)
    assert any(text.startswith("Walsh, Deep Learning Systems Lab 1") for text in texts)
    assert any("its units do not match" in text for text in texts)
    assert "Not ranked, for want of a figure: activation_checkpointing." in texts


def test_learning_rates_have_a_table_and_a_figure() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        return (1, 1, None) if rate > 5e-3 else (1, 1, 2.3 + 0.1 * log(rate / 1e-3) ** 2)

    study = factorial_record({"training.learning_rate": [1e-3, 3e-4, 1e-2]}, of)
    comparison = analyse(study)
    (row,) = table(sections(comparison)["learning_rates"]).values()
    assert row[1:] == ("0.001", row[2], "0.001", "0.0003 to 0.001", "diverged at 0.01")
    assert "learning rate" in render(comparison)


@pytest.mark.parametrize(("best", "side", "end"), [(3e-4, "lower", "lowest"), (1e-2, "higher", "highest")])
def test_a_best_rate_at_an_end_is_called_so(best: float, side: str, end: str) -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return 1, 1, 2.3 + 0.1 * log(float(levels["training.learning_rate"]) / best) ** 2

    comparison = analyse(factorial_record({"training.learning_rate": [1e-3, 3e-4, 1e-2]}, of))
    (row,) = table(sections(comparison)["learning_rates"]).values()
    assert row[-1] == f"a {side} rate may be better: the best one is the {end} tested"


def test_a_search_begins_with_its_best_row() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return 1, 1, {1e-3: 2.0, 3e-4: 1.9, 1e-2: 1.8, 3e-3: 1.7}[float(levels["training.learning_rate"])]

    study = factorial_record({"training.learning_rate": [1e-3, 3e-4, 1e-2, 3e-3]}, of)
    first, second, third = study.treatments
    halving = Halving(rungs=((first, third), (second, "did not run"), ("x", "y")), kept=(2, 1, 1))
    comparison = analyse(study.model_copy(update={"halving": halving}))
    said = str(sections(comparison)["answer"].blocks[0])
    assert second == "training.learning_rate=0.01"
    assert said == "Of 2 configurations, rate 0.01 ended with the lowest loss, 0.2 nats below the baseline."
    assert "lowest" not in "".join(StudyView(comparison).sentences[1:]), "one row has the lowest loss"
    assert said in StudyView(comparison).values()["sections"]["answer"]["text"]


def test_values_are_json_and_the_terminal_is_short(whole: Comparison) -> None:
    found = json.loads(json.dumps(StudyView(whole).values()["sections"], allow_nan=False))
    assert found["answer"]["fastest"]["row"] == "sdpa_attention"
    assert found["answer"]["text"] == said_of(whole)
    assert found["answer"]["headline"] == sentences(whole)[0]
    assert found["equivalence"][0]["verdict"] == "same"
    assert next(row["row"] for row in found["pareto_front"] if row["on_front"]) == "sdpa_attention"
    assert found["ranking"]["by_formula"][0]["row"] == "gradient_accumulation:micro_batches=4"
    assert {name for name, one in sections(whole).items() if one.section.printed} == {"ranking"}, (
        "the last lines have the answer"
    )


def test_the_page_opens_with_the_answer_and_names_the_points_of_the_front(whole: Comparison) -> None:
    with drawn():
        page = render(whole)
    first, second, *_ = map(no_break, sentences(whole))
    front = f"No other row beats {LABELS[0]}, {LABELS[3]} and {LABELS[4]}"
    assert page.index(f"<h1>{first}</h1>") < page.index(second) < page.index(f"<h2>{front}</h2>")
    one = sections(whole)["pareto_front"].section
    assert one.panels is not None
    (panel,) = one.panels(StudyView(whole))
    figure = drawing(panel)
    assert "gradient_accumulation" in figure
    assert "loss 2.416" in figure
    with drawn():
        assert render(whole) == page


@pytest.mark.parametrize("draw", range(40))
def test_any_part_of_a_study_has_sections_and_finite_values(draw: int) -> None:
    rng = random.Random(draw)
    whole = record(seeds=3, target_loss=rng.choice((None, 3.0)), weights={"val_loss": 1.0}, ranking="walsh-2023")
    statuses = [Status.DONE] * 6 + [Status.DIVERGED, Status.OUT_OF_MEMORY, Status.FAILED, Status.BUDGET_REACHED]
    missing = ("val_loss", "step_seconds", "predicted", "environment")
    cells = []
    for one in rng.sample(whole.cells, rng.randint(1, len(whole.cells))):
        changes: dict[str, Any] = {"status": rng.choice(statuses)}
        changes |= {name: None for name in missing if rng.random() < 0.1}
        changes |= {"blocks": ()} if rng.random() < 0.1 else {}
        curve = one.curve if rng.random() < 0.8 else Curve()
        cells.append(one.model_copy(update={"result": one.result.model_copy(update=changes), "curve": curve}))
    fields = {"protocol": whole.protocol.model_copy(update={"blocks": rng.choice((0, 5))})}
    fields["ending"] = rng.choice(list(StudyEnding))
    comparison = analyse(whole.model_copy(update={"cells": tuple(cells), **fields}))
    study = StudyView(comparison)
    found = study.values()["sections"]
    json.dumps(found, allow_nan=False)
    for part in study.sections:
        for block in part.blocks:
            assert not isinstance(block, Table) or all(len(row) == len(block.columns) for row in block.rows)
        for panel in part.section.panels(study) if part.section.panels else ():
            alone(panel)
    for panels in FIGURES.values():
        panels(comparison)


@pytest.mark.parametrize(
    ("loss", "peak", "says", "cells"),
    [
        (2.4, 1.0, "so they change nothing. Their step times differ by", ("bit-equal", "equal")),
        (2.5, 1.0, "something other than the label differs", ("NOT EQUAL", "equal")),
        (2.4, 1.5, "something other than the label differs", ("bit-equal", "NOT EQUAL")),
    ],
)
def test_placebos_are_held_against_the_row_that_they_repeat(
    loss: float, peak: float, says: str, cells: tuple[str, str]
) -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return (peak, 1.02, loss) if levels["optimizations"].startswith("placebo") else (1, 1, 2.4)

    vary = {"optimizations": ["none", {"placebo": "scaler"}], "training.batch_size": [8, 16]}
    comparison = analyse(factorial_record(vary, of, noise=0.0))
    found = sections(comparison)["placebos"]
    assert says in str(found.blocks[0])
    rows = table(found)
    assert len(rows) == 2
    ours = rows["placebo: scaler"]
    assert ours[1:4] == ("baseline", *cells)
    assert rows["placebo: scaler · batch 16"][1] == "batch 16"
    assert "placebos" not in sections(lion(2.4))


def test_a_study_without_times_says_what_memory_costs() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return (0.5, 0.8, 2.5) if levels["optimizations"] == "lion" else (1, 1, 2.4)

    timed = factorial_record({"optimizations": ["none", "lion"]}, of)
    assert "Lion takes 20 % less time" in said_of(analyse(timed))
    untimed = timed.model_copy(update={"protocol": timed.protocol.model_copy(update={"blocks": 0})})
    said = said_of(analyse(untimed))
    assert "Lion takes half the memory, but at a worse loss." in said
    assert "time" not in said


def test_an_answer_is_given_at_each_level_of_a_context() -> None:
    comparison = analyse(in_two_sizes())
    first, *_, untold = sentences(comparison)
    assert first == "bf16_mixed is the best choice in both cases."
    assert untold.startswith("The study cannot tell changes of the step time below")
    found = StudyView(comparison).values()["sections"]["answer"]
    assert [one["context"] for one in found["by_context"]] == [{"shape": "large"}, {"shape": "small"}]
    commands = [text for label, text in closing(StudyView(comparison)) if label == "next"]
    assert any(text.endswith("trains with this choice at small") for text in commands)
