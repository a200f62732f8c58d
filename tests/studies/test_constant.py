"""Constant quantities: the solved settings against a search of all values, and rows that follow from them."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from assay.config import Home, load
from assay.errors import UsageError
from assay.hardware import detect
from assay.hardware.rates import rates_file, with_rates
from assay.optimizations import resolve_run
from assay.studies.constant import HeldQuantity, nearest, sentence
from assay.studies.kinds.comparison import ComparisonStudy
from assay.studies.kinds.factorial import Factorial
from support.machines import MEASURED

BASE = load("demo", ["training.steps=120", "training.batch_size=8", "model.vocab_size=256", "device=cpu"])


def brute(quantity: Callable[[int], float], target: float, multiple_of: int, most: int = 400) -> int:
    """The slow reference: every multiple, the smaller one of two that are equally near."""
    return min(range(multiple_of, most * multiple_of, multiple_of), key=lambda one: abs(quantity(one) - target))


def test_bisection_finds_what_a_search_of_all_values_finds() -> None:
    draw = random.Random(0)
    for _ in range(300):
        slope, power, multiple = draw.uniform(0.1, 9), draw.choice((1, 1.5, 2)), draw.choice((1, 3, 8))

        def quantity(value: int, slope: float = slope, power: float = power) -> float:
            return math.floor(slope * value**power)

        target = quantity(draw.randint(1, 300 * multiple)) + draw.choice((0, 0, 1, 7))
        found, slow = nearest(quantity, target, multiple), brute(quantity, target, multiple)
        assert abs(quantity(found) - target) == abs(quantity(slow) - target)


def rows(constant: dict[str, object], vary: dict[str, list[object]]) -> dict[str, object]:
    study = Factorial.model_validate({"vary": vary, "constant": constant}, strict=False)
    return {row.label: row.run for row in study.rows(BASE)}


def test_tokens_are_held_by_the_number_of_steps() -> None:
    found = rows({"quantity": "tokens"}, {"training.batch_size": [8, 16, 32, 7]})
    assert [run.training.steps for run in found.values()] == [120, 60, 30, 137]  # type: ignore[attr-defined]
    said = sentence(HeldQuantity(quantity="tokens"), found)  # type: ignore[arg-type]
    assert "tokens is held at 61.4k by training.steps, 120 in the control: 60 in training.batch_size=16; " in said
    assert said.endswith("; 137 in training.batch_size=7 (−0.1 %).")


@pytest.mark.parametrize(
    ("constant", "vary"),
    [
        ({"quantity": "parameters"}, {"model.n_layer": [2, 4, 1]}),
        ({"quantity": "flops_per_step", "by": "training.batch_size"}, {"model.context_length": [64, 32]}),
        ({"quantity": "tokens_per_step"}, {"model.context_length": [64, 32, 128]}),
        ({"quantity": "tensors_peak_bytes"}, {"optimizations": ["none", "sdpa_attention", "bf16_mixed"]}),
        ({"quantity": "iterations"}, {"training.batch_size": [8, 16]}),
        ({"quantity": "tokens_per_step"}, {"optimizations": ["none", "smaller_batch:factor=2"]}),
    ],
)
def test_each_quantity_comes_as_near_as_whole_numbers_allow(
    constant: dict[str, object], vary: dict[str, list[object]]
) -> None:
    held = HeldQuantity.model_validate(constant)
    control, *others = rows(constant, vary).values()
    target = held.of(control)  # type: ignore[arg-type]
    for run in others:
        assert held.of(run) == pytest.approx(target, rel=0.2)  # type: ignore[arg-type]
        for beside in (-1, 1):
            step = 2 * BASE.model.n_head if held.key == "model.n_embd" else 1
            value = _value(run, held.key) + beside * step
            if value > 0 and (held.quantity, value % 2) != ("tokens_per_step", 1):
                other = held._with(run, value)  # type: ignore[arg-type]
                assert abs(held.of(other) - target) >= abs(held.of(run) - target)  # type: ignore[arg-type]


def _value(run: object, key: str) -> int:
    for part in key.split("."):
        run = getattr(run, part)
    assert isinstance(run, int)
    return run


def test_a_comparison_holds_it_as_well() -> None:
    study = ComparisonStudy(treatments=("smaller_batch:factor=4",), constant=HeldQuantity(quantity="tokens"))
    control, row = study.rows(BASE)
    assert (control.run.training.steps, row.run.training.steps) == (120, 480)


@pytest.mark.parametrize(
    ("constant", "vary", "says"),
    [
        (
            {"quantity": "tokens"},
            {"training.steps": [10, 20]},
            "sets training.steps, which decides",
        ),
        ({"quantity": "tokens", "by": "model.n_layer"}, {"training.batch_size": [8, 800]}, "cannot be held constant"),
        ({"quantity": "parameters", "by": "no.such"}, {"model.n_layer": [2, 4]}, "unknown key 'no'"),
    ],
)
def test_an_impossible_constant_is_a_sentence(
    constant: dict[str, object], vary: dict[str, list[object]], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        rows(constant, vary)


def test_an_unknown_quantity_or_vocabulary_is_refused() -> None:
    with pytest.raises(ValidationError, match="tokens_per_step"):
        HeldQuantity.model_validate({"quantity": "beauty"})
    unknown = load("demo", ["data.tokenizer=char"])
    study = Factorial.model_validate(
        {"vary": {"model.n_layer": [4, 2]}, "constant": {"quantity": "parameters"}}, strict=False
    )
    with pytest.raises(UsageError, match=r"is not known before the text is prepared; give model\.vocab_size"):
        study.rows(unknown)


def test_times_are_predicted_by_the_rates_of_the_home_that_is_named(tmp_path: Path) -> None:
    known, empty = Home(tmp_path / "known"), Home(tmp_path / "empty")
    known.ready()
    rates_file(known).write_bytes(with_rates(rates_file(known), detect(), {"cpu": MEASURED}, BASE.threads))
    constant = HeldQuantity(quantity="step_seconds")
    assert constant.in_home(known).of(resolve_run(BASE)) > 0
    with pytest.raises(UsageError, match="cannot be predicted here"):
        constant.in_home(empty).of(resolve_run(BASE))
