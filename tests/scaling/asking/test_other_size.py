"""Overtrained and served models against closed forms, conditions of a minimum and a published figure."""

import numpy as np
import pytest

from assay.scaling.asking.frontier import Minimum, Optimum, for_parameters
from assay.scaling.asking.other_size import overtrained, served
from assay.scaling.laws import Law
from assay.scaling.published import BESIROGLU, FRONTIERS


def _tokens(law: Law, parameters: float, loss: float) -> float:
    """The closed form of D, by which a model of N parameters has a loss."""
    constants = law.printed
    rest = loss - constants["E"] - constants["A"] / parameters ** constants["α"]
    return float((constants["B"] / rest) ** (1 / constants["β"]))


@pytest.mark.parametrize("ratio", [1.0, 20.0, 200.0, 10_000.0])
def test_an_overtrained_model_has_the_loss_and_the_ratio(ratio: float) -> None:
    best = Minimum(BESIROGLU).at(1e22)
    found = overtrained(BESIROGLU, best, ratio)
    assert found.model.tokens_per_parameter == pytest.approx(ratio)
    assert float(BESIROGLU.loss(found.model.parameters, found.model.tokens)) == pytest.approx(best.loss, rel=1e-9)
    assert found.model.tokens == pytest.approx(_tokens(BESIROGLU, found.model.parameters, best.loss or 0.0))
    assert found.training >= 1.0
    assert (found.size < 1.0) == (ratio > best.tokens_per_parameter)


def test_the_optimums_own_ratio_costs_nothing() -> None:
    best = Minimum(BESIROGLU).at(1e22)
    found = overtrained(BESIROGLU, best, best.tokens_per_parameter)
    assert (found.size, found.training) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize("inference", [1.0, 1e10, 2e12, 1e15])
def test_a_served_model_is_cheaper_than_its_neighbours(inference: float) -> None:
    best = for_parameters(FRONTIERS["Besiroglu"], 13e9)
    found = served(BESIROGLU, best, inference)

    def flops(parameters: float) -> float:
        return parameters * (6 * _tokens(BESIROGLU, parameters, best.loss or 0.0) + 2 * inference)

    size = found.model.parameters
    assert found.flops == pytest.approx(flops(size), rel=1e-6)
    for change in (0.98, 1.02):
        assert flops(size * change) >= found.flops * (1 - 1e-9)
    assert found.whole <= 1.0 + 1e-9
    assert found.size <= 1.0 + 1e-9


def test_no_inference_leaves_the_optimum() -> None:
    best = Minimum(BESIROGLU).at(1e22)
    assert served(BESIROGLU, best, 1.0).size == pytest.approx(1.0, abs=1e-3)


def test_the_figure_of_sardana_et_al() -> None:
    """Their figure 1: 13 B parameters and 2 T tokens of inference; 7 B parameters take 1.7e22 FLOPs, 17 %, less."""
    law = FRONTIERS["Hoffmann 3, unrounded"]
    assert law.law is not None
    best = for_parameters(law, 13e9)
    found = served(law.law, best, 2e12)
    whole = best.flops + 2 * 13e9 * 2e12
    assert found.model.parameters == pytest.approx(7e9, rel=0.05)
    assert 1 - found.whole == pytest.approx(0.17, abs=0.01)
    assert whole - found.flops == pytest.approx(1.7e22, rel=0.06)


def test_any_law_of_the_loss_can_be_asked() -> None:
    class Other:
        """A law that is no sum of powers, with equal shares at the optimum."""

        def loss(self, parameters: float, tokens: float) -> np.ndarray:  # type: ignore[type-arg]
            return np.asarray((1e10 / parameters + 1e11 / tokens) ** 0.1)

        def optimum(self, flops: float) -> tuple[float, float]:
            parameters = (flops / 60) ** 0.5
            return parameters, 10 * parameters

    best = Minimum(Other()).at(6e21)  # type: ignore[arg-type]
    found = overtrained(Other(), best, 90.0)  # type: ignore[arg-type]
    # With x = 1e10/N, the sum is 2x at D = 10·N, and x·(1 + 1/9) at D = 90·N.
    assert found.size == pytest.approx(10 / 18)
    assert isinstance(found.model, Optimum)
