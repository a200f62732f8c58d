"""Squared ReLU: the model that is configured so, dense or with experts."""

from pathlib import Path

import pytest
import torch

from assay.config import Spec
from assay.model.activation import SquaredReluModule
from support.configured import assert_as_configured, assert_proven_only_where_applied, assert_read_back, assert_refused
from support.peaks import assert_exact
from support.runs import SHAPE

SQUARED = Spec(name="squared_relu")
EXPERTS = SHAPE.model_copy(update={"n_expert": 4})
LONG = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 64, "vocab_size": 40}


@pytest.mark.parametrize("shape", [SHAPE, EXPERTS], ids=["dense", "experts"])
def test_it_is_predicted_and_trained_as_a_model_that_is_configured_so(shape: object) -> None:
    assert_as_configured(SQUARED, shape=shape, activation="squared_relu")  # type: ignore[arg-type]


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    assert_proven_only_where_applied(SQUARED, "4 ReLUs in forward and 0 GELUs in 4 blocks")


def test_a_trained_model_is_read_with_it(tmp_path: Path) -> None:
    assert_read_back(SQUARED, tmp_path)


def test_values_and_derivatives_are_those_of_the_formula() -> None:
    x = torch.tensor([-2.0, -1e-9, 0.0, 1e-9, 3.0], dtype=torch.float64, requires_grad=True)
    found = SquaredReluModule()(x)
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert found.tolist() == [0, 0, 0, 1e-9 * 1e-9, 9]
    assert slope.tolist() == [0, 0, 0, 2e-9, 6]


@pytest.mark.parametrize(
    ("stack", "changes"),
    [
        ("squared_relu", {}),
        ("squared_relu", {"n_expert": 4}),
        ("squared_relu+bf16_mixed", {"dropout": 0.1}),
        ("squared_relu+activation_checkpointing", {"n_embd": 64}),
    ],
)
def test_the_peak_is_the_measured_one(stack: str, changes: dict[str, object]) -> None:
    assert_exact({**LONG, **changes}, 4, stack)


def test_where_there_is_no_gelu_it_is_refused() -> None:
    assert_refused(SQUARED, "model.activation=swiglu has none; set model.activation=gelu", activation="swiglu")
    assert_refused(SQUARED, "model.activation=squared_relu has none", activation="squared_relu")
