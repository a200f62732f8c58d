"""The first sentence of an answer: amounts in words, and what is said first of which study."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from assay.analysis.choose.criteria import LogChange
from assay.analysis.comparison import analyse
from assay.records.status import Status
from assay.records.study import ComparisonRecord, Halving
from assay.report.study.headline import amount, capital, known_amount, share
from assay.report.study.view import StudyView
from support.comparisons import FACTORS, TREATMENTS, record
from support.factorials import factorial, study
from support.swept import Figures, cut_short, factorial_record, in_two_sizes, recipe_parts


def headline(whole: ComparisonRecord) -> str:
    return StudyView(analyse(whole)).headline


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (-0.8, "a fifth of the time"),
        (-0.75, "a quarter of the time"),
        (-0.667, "a third of the time"),
        (-0.5, "half the time"),
        (-0.48, "half the time"),
        (-0.529, "half the time"),
        (-0.54, "54 % less time"),
        (-0.46, "46 % less time"),
        (-0.29, "29 % less time"),
        (-0.997, "less than 1 % of the time"),
        (-0.004, "the same time"),
        (0.0, "the same time"),
        (0.005, "the same time"),
        (0.17, "17 % more time"),
        (0.87, "87 % more time"),
        (0.92, "twice the time"),
        (1.0, "twice the time"),
        (1.4, "2.4 × the time"),
        (2.1, "three times the time"),
        (17.3, "18 × the time"),
    ],
)
def test_an_amount_is_in_words_near_a_simple_ratio_and_in_percent_or_a_multiple_elsewhere(
    change: float, said: str
) -> None:
    assert amount(change, "time") == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (-0.8, "a fifth of"),
        (-0.19, "81 % of"),
        (1.0, "twice"),
        (0.3, "130 % of"),
        (0.001, "about"),
        (-1.0, "less than 1 % of"),
    ],
)
def test_a_share_is_in_words_near_a_simple_ratio(change: float, said: str) -> None:
    assert share(change) == said


def test_a_change_that_cannot_be_told_from_none_is_about_the_same() -> None:
    assert known_amount(LogChange(-0.05, 0.5), "memory") == "about the same memory"
    assert known_amount(LogChange(-0.3, 0.5), "memory") == "", "a third is not about the same"
    assert known_amount(LogChange(-0.3, 0.1), "memory") == "26 % less memory"
    assert known_amount(LogChange(-0.3, None), "memory") == "26 % less memory"
    assert known_amount(None, "memory") == ""


@pytest.mark.parametrize(
    ("text", "said"), [("turn on", "Turn on"), ("bf16_mixed is", "bf16_mixed is"), ("fp8 is", "fp8 is"), ("", "")]
)
def test_a_name_that_one_types_keeps_its_small_letter(text: str, said: str) -> None:
    assert capital(text) == said


def two(memory: float, step: float, loss: float | None, **fields: Any) -> ComparisonRecord:
    """The study of Lion with its memory, step time and loss, beside 1, 1 and 2.4; losses vary by chance a little."""

    def of(levels: Mapping[str, str]) -> Figures:
        return (memory, step, loss) if levels["optimizations"] == "lion" else (1, 1, 2.4)

    return factorial_record({"optimizations": ["none", "lion"]}, of, **fields)


def untimed(whole: ComparisonRecord) -> ComparisonRecord:
    return whole.model_copy(update={"protocol": whole.protocol.model_copy(update={"blocks": 0})})


def rates(best: Mapping[str, float]) -> ComparisonRecord:
    """The study of learning rates with the best one of each batch."""

    def of(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        return 1, 1, 2.3 + 0.1 * abs(rate / best[levels["training.batch_size"]] - 1)

    vary = {"training.learning_rate": [1e-3, 3e-4, 3e-3], "training.batch_size": [int(one) for one in best]}
    return factorial_record(vary, of)


RATES = [1e-3, 3e-4, 3e-3]
WIDTHS = {"model.n_embd": [32, 64]}


def swept(
    of: Mapping[float, float | None], vary: Mapping[str, Any] | None = None, seeds: int = 3, **other: float | None
) -> str:
    """The headline of a study of rates with a loss for each; `other` has those at a further level."""

    def figures(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        at = next((name for name in other if name.removeprefix("at_") in levels.values()), None)
        return 1, 1, other[at] if at and rate == max(of) else of[rate]

    return headline(
        factorial_record({"training.learning_rate": [*of], **(vary or {})}, figures, seeds=seeds, noise=0.0)
    )


def test_rates_that_are_as_good_and_few_seeds_are_said() -> None:
    flat = {1e-3: 2.3, 3e-4: 2.305, 3e-3: 2.4}
    best = "The best learning rate is 0.001; rates from 0.0003 to 0.001 are as good"
    assert swept(flat) == f"{best}."
    assert swept(flat, seeds=2) == f"{best}, on two seeds."
    assert swept({1e-3: 2.3, 3e-4: 2.4, 3e-3: 2.4}, seeds=1) == "The best learning rate is 0.001, on one seed."
    edge = "The best learning rate is 0.003, the highest that was tested; rates from 0.001 to 0.003 are as good"
    assert swept({1e-3: 2.305, 3e-4: 2.4, 3e-3: 2.3}, seeds=1) == f"{edge}, on one seed."


@pytest.mark.parametrize("vary", [{"training.batch_size": [8, 16]}, WIDTHS])
def test_a_best_rate_that_moves_within_the_margin_does_not_move(vary: Mapping[str, Any]) -> None:
    level = str(next(iter(vary.values()))[1])
    apart = {3e-4: 2.4, 1e-3: 2.3, 3e-3: 2.5}
    assert swept(apart, vary, **{f"at_{level}": 2.295}) == (
        "A learning rate of 0.001 is as good as the best everywhere."
    )
    near = {3e-4: 2.305, 1e-3: 2.3, 3e-3: 2.308}
    assert swept(near, vary, **{f"at_{level}": 2.298}) == (
        "Learning rates from 0.0003 to 0.003 are as good as the best everywhere."
    )


def test_a_third_factor_keeps_the_warning_that_the_best_rate_is_the_last_tested() -> None:
    rising = {1e-3: 2.4, 3e-4: 2.5, 3e-3: 2.3}
    edge = "the highest that was tested"
    assert swept(rising, WIDTHS) == f"The best learning rate is 0.003 in both cases, {edge}."
    vary = {"optimizations": ["none", "lion"], **WIDTHS}

    def of(levels: Mapping[str, str]) -> Figures:
        best = 3e-3 if levels["optimizations"] == "lion" or levels["model.n_embd"] == "64" else 1e-3
        return 1, 1, 2.3 + 0.1 * abs(float(levels["training.learning_rate"]) / best - 1)

    rates = {"training.learning_rate": [*RATES, 1e-4]}
    said = headline(factorial_record({**vary, **rates}, of))
    assert said == f"The best learning rate is 0.003 throughout with lion, {edge}, and moves with none."


def test_a_batch_at_which_every_rate_diverged_is_none_of_those_with_a_best_rate() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        rate, lost = float(levels["training.learning_rate"]), levels["training.batch_size"] == "32"
        return 1, 1, None if lost else 2.3 + abs(rate - 1e-3) * 100

    vary = {"training.learning_rate": RATES, "training.batch_size": [8, 16, 32]}
    assert headline(factorial_record(vary, of)) == "The best learning rate is 0.001 at batch 8 and 16."


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ((1e-3, 3e-4, 3e-3, 3e-3), "The best learning rate is 0.003 throughout with lion, and moves with none."),
        ((1e-3,) * 4, "The best learning rate is 0.001 in all 4 cases."),
        ((1e-3, 3e-3, 3e-3, 1e-3), "The best learning rate moves from case to case, from 0.001 to 0.003."),
    ],
)
def test_where_the_best_learning_rate_holds_is_said(best: tuple[float, ...], said: str) -> None:
    at = dict(zip(((way, width) for way in ("none", "lion") for width in ("32", "64")), best, strict=True))

    def of(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        return 1, 1, 2.3 + 0.1 * abs(rate / at[levels["optimizations"], levels["model.n_embd"]] - 1)

    vary = {
        "optimizations": ["none", "lion"],
        "model.n_embd": [32, 64],
        "training.learning_rate": [1e-3, 3e-4, 3e-3, 1e-2],
    }
    assert headline(factorial_record(vary, of)) == said


def test_the_parts_of_a_fractional_study_of_losses_are_said_by_their_effects() -> None:
    said = headline(recipe_parts())
    assert said == "Lion lowers the loss most, by 6.7 % on average; so does width 64, less."


def test_the_fastest_row_at_the_same_loss_is_to_be_turned_on() -> None:
    assert (
        headline(two(0.5, 0.8, 2.4)) == "Turn on lion: steps take 20 % less time and half the memory, at the same loss."
    )
    assert (
        headline(two(1.0, 0.5, 2.3))
        == "Turn on lion: steps take half the time and about the same memory, at a lower loss."
    )


def test_another_change_is_to_be_chosen() -> None:
    rows = factorial({"training.batch_size": ("8", "16")})
    whole = study(rows, lambda one: (0.5, 0.5, 1.0) if one["training.batch_size"] == "16" else (1.0, 1.0, 1.0))
    assert headline(whole).startswith("Choose batch 16: steps take half the time and half the memory, ")


def test_the_lightest_row_is_named_where_none_is_faster() -> None:
    said = "urn on lion: it takes half the memory"
    slower = f"If memory is short, t{said} and 20 % more time, at the same loss."
    assert headline(two(0.5, 1.2, 2.4)) == slower
    assert headline(untimed(two(0.5, 1.2, 2.4))) == f"T{said}, at the same loss."


def test_a_long_name_leaves_out_what_is_said_elsewhere() -> None:
    stack = "+".join(TREATMENTS[:3] + TREATMENTS[3:4] + ("lion",))
    fast = factorial_record(
        {"optimizations": ["none", stack], "training.batch_size": [8, 16]},
        lambda one: (0.7, 0.3, 2.4) if stack in one.values() and "16" in one.values() else (1, 1, 2.4),
        noise=0.0,
    )
    label = "batch 16"
    said = headline(fast)
    assert label in said
    assert len(re.findall(r"\w[^\s]*", said)) <= 25
    assert said.endswith("at the same loss.")


def test_a_lower_loss_is_said_where_nothing_is_saved() -> None:
    assert headline(two(1.5, 1.5, 2.2)) == "The loss is lowest with lion: 0.2 nats below the baseline."
    rows = factorial({"shape": ("small", "large")})
    whole = study(
        rows, lambda one: (2.0, 2.0, 0.9) if one["shape"] == "large" else (1.0, 1.0, 1.0), apart=1e-4, name="x"
    )
    assert headline(whole) == "The loss is lowest with large: 0.24 nats below the baseline (small)."


def test_nothing_gained_is_said_by_what_was_measured() -> None:
    assert headline(two(1.5, 1.5, 2.4)) == "Nothing is shown to save time or memory at the same loss."
    assert headline(untimed(two(1.5, 1.5, 2.4))) == "Nothing is shown to have a lower loss than the baseline."


def test_a_target_comes_first() -> None:
    first = headline(record(seeds=3, target_loss=3.0))
    assert first == "sdpa_attention reaches a training loss of 3 first, in 88 % of the baseline's time."
    never = headline(record(seeds=3, target_loss=0.1))
    assert never == "Nothing reaches a training loss of 0.1 for good at every seed."
    slower = dict.fromkeys(TREATMENTS, (1.0, 1.0, 1.5, 0.0))
    said = headline(record(seeds=3, target_loss=3.0, factors={**FACTORS, **slower}))
    assert said.startswith("The baseline reaches a training loss of 3 first, after ")


def test_a_search_says_its_best_row_against_the_control() -> None:
    whole = rates({"8": 3e-3})
    rows = whole.treatments
    found = whole.model_copy(update={"halving": Halving(rungs=(tuple(rows),), kept=(len(rows),))})
    said = headline(found)
    assert said == "Of 2 configurations, rate 0.003 ended with the lowest loss, 0.068 nats below the baseline."


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ({"8": 1e-3}, "The best learning rate is 0.001."),
        ({"8": 1e-3, "16": 1e-3}, "The best learning rate is 0.001 at every batch."),
        ({"8": 1e-3, "16": 3e-3}, "The best learning rate is 0.001 at batch 8 and 0.003 at batch 16."),
        (
            {"8": 1e-3, "16": 3e-3, "32": 3e-3, "64": 3e-3},
            "The best learning rate depends on the batch, from 0.001 to 0.003.",
        ),
    ],
)
def test_the_best_learning_rate_is_said_by_batch(best: Mapping[str, float], said: str) -> None:
    assert headline(rates(best)) == said


def test_cases_have_one_choice_or_their_own() -> None:
    assert headline(in_two_sizes()) == "bf16_mixed is the best choice in both cases."

    def of(levels: Mapping[str, str]) -> Figures:
        good = {"large": "lion", "small": "sgd"}.get(levels["shape"])
        return (1, 0.5, 2.4) if levels["optimizations"] == good else (1, 1, 2.4)

    shapes = {"large": {}, "small": {"model.n_layer": 2}}
    optimizations = ["none", "lion", "sgd"]

    def made(**levels: Any) -> ComparisonRecord:
        shape = {"role": "context", "levels": {**shapes, **levels}}
        return factorial_record({"shape": shape, "optimizations": optimizations}, of, noise=0.0)

    assert headline(made()) == "Large: lion is best; small: SGD is best."
    assert headline(made(wide={"model.n_embd": 32})) == "Lion is the best choice in 1 of 3 cases."
    shapes = {"one": {}, "other": {"model.n_layer": 2}}
    assert headline(made()) == "Nothing is shown to save anything at the same loss, in either case."


def test_switches_that_are_dead_change_nothing() -> None:
    def of(levels: Mapping[str, str]) -> Figures:
        return (1, 1, loss) if levels["optimizations"].startswith("placebo") else (1, 1, 2.4)

    vary = {"optimizations": ["none", {"placebo": "scaler"}, {"placebo": "other"}]}
    loss = 2.4
    said = headline(factorial_record(vary, of, noise=0.0))
    assert said.startswith("A dead switch changes nothing: each of 2 such switches has the loss and the memory ")
    loss = 2.5
    assert "something other than the label differs" in headline(factorial_record(vary, of, noise=0.0))


def test_rows_that_all_diverged_are_named() -> None:
    assert headline(two(1, 1, None)) == "Lion diverged."
    lost = {one: {"status": Status.OUT_OF_MEMORY, "reason": "lost"} for one in TREATMENTS}
    said = headline(record(seeds=3, changes=lost))
    assert said == "sdpa_attention, bf16_mixed and 3 others ran out of memory."


def test_a_row_that_did_nothing_or_the_wrong_thing_is_named() -> None:
    for status, words in ((Status.NO_EFFECT, "had no effect"), (Status.WRONG_VALUES, "computed wrong values")):
        lost = {TREATMENTS[0]: {"status": status, "reason": "lost"}}
        assert headline(record(treatments=TREATMENTS[:1], changes=lost)) == f"sdpa_attention {words}."


def test_without_a_row_that_ended_nothing_is_said() -> None:
    assert headline(cut_short(record(seeds=3), ("", 0))) == ""
