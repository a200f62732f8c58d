"""The best size and data: answers of laws, frontiers, and models off the optimum."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.frontier import Minimum, Optimum, Tilted, exponent, for_parameters
from assay.scaling.laws import Law
from assay.scaling.optimal import Text, answer, overtrained_model, serving_model
from assay.scaling.points import read_points
from assay.scaling.published import BESIROGLU, FRONTIERS


@pytest.mark.parametrize(
    ("flops", "far", "marked", "refused"),
    [
        (3e21, False, False, False),
        (2e23, False, False, False),
        (4e23, False, True, False),
        (2.9e25, False, True, False),
        (3.1e25, False, True, True),
        (3.1e25, True, True, False),
    ],
)
def test_distance_marks_and_refuses(flops: float, far: bool, marked: bool, refused: bool) -> None:
    found = answer("Hoffmann 1", FRONTIERS["Hoffmann 1"], "flops", flops, far)
    assert (found.far, found.optimum is None) == (marked, refused)
    assert found.beyond == pytest.approx(flops / 3e21)


def test_a_law_beyond_its_reach_leaves_the_others() -> None:
    found = scaling.optimal(flops=3.1e25)
    assert found.answers["Hoffmann 1"].optimum is None
    assert found.answers["Besiroglu"].optimum is not None
    frame = found.to_frame()
    assert frame.loc["Hoffmann 1", "refused"]
    with pytest.raises(UsageError, match=r"times the compute of the largest run .* add --far"):
        scaling.optimal(parameters=1e14)


@pytest.mark.parametrize("quantity", ["flops", "parameters", "tokens"])
def test_intervals_are_of_what_was_not_given(quantity: str) -> None:
    value = {"flops": 1e22, "parameters": 1e10, "tokens": 2e11}[quantity]
    found = scaling.optimal(**{quantity: value}).answers["Besiroglu"]  # type: ignore[arg-type]
    assert set(found.intervals) == {"flops", "parameters", "tokens"} - {quantity}
    for name, (low, high) in found.intervals.items():
        assert low < getattr(found.optimum, name) < high


def test_growth_is_the_ratio_of_optima() -> None:
    factors = scaling.growth(10).answers
    from_run = scaling.growth(10, parameters=1e8, tokens=1e10)
    assert from_run.flops == pytest.approx(6e18)
    for name, one in from_run.answers.items():
        assert one.parameters * one.tokens == pytest.approx(10)
        assert one.parameters == pytest.approx(factors[name].parameters)
        ratio = FRONTIERS[name].at(6e19).parameters / FRONTIERS[name].at(6e18).parameters
        assert one.parameters == pytest.approx(ratio)
        assert one.end is not None
        assert one.end.flops == pytest.approx(6e19)
    assert factors["Kaplan, C_min = C"].parameters == pytest.approx(10**0.73)
    assert factors["Hoffmann 2"].parameters_interval == pytest.approx((10**0.462, 10**0.534))


def test_a_hundred_trillion_parameters_take_eight_to_ten_petabytes() -> None:
    text = Text(20 * 1e14)
    assert text.nbytes == (8e15, 10e15)
    assert text.common_crawls == 20


def test_a_bill_is_that_of_the_flops() -> None:
    found = scaling.optimal(flops=1e21, device="h100", devices=8, price=2.5, mfu=0.4).answers["Hoffmann 1"]
    assert found.bill is not None
    assert found.bill.seconds == pytest.approx(1e21 / (8 * 0.4 * 989e12))
    assert found.bill.money == pytest.approx(1e21 / (0.4 * 989e12) / 3600 * 2.5)


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf"), 1e-300])
@pytest.mark.parametrize(
    "name", ["flops", "parameters", "tokens", "tokens_per_parameter", "inference_tokens", "price", "mfu"]
)
def test_an_impossible_number_is_a_sentence(name: str, number: float) -> None:
    given = {"device": "h100", name: number} if name in ("price", "mfu") else {name: number}
    first = {} if name in ("flops", "parameters", "tokens") else {"flops": 1e21}
    if name == "price" and number in (0.0, 1e-300):
        assert scaling.optimal(**given, **first).answers  # type: ignore[arg-type]
        return
    with pytest.raises(UsageError):
        scaling.optimal(**given, **first)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"parameters": 1e9}, "from a run with both parameters and tokens"),
        ({"tokens": 1e9}, "from a run with both parameters and tokens"),
        ({"flops": 1e21, "parameters": 1e9, "tokens": 1e10}, "growth starts from FLOPs, or from a run"),
        ({"times": 0.0}, "0 times the compute are not possible"),
        ({"times": 1e9, "flops": 1e21}, "add --far"),
    ],
)
def test_growth_from_nowhere_is_a_sentence(given: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scaling.growth(**({"times": 10.0} | given))


def test_the_smallest_and_largest_amounts_are_answered() -> None:
    for value in (1e3, 1e20):
        for name in ("parameters", "tokens"):
            found = scaling.optimal(
                **{name: value},
                far=True,
                tokens_per_parameter=1e6,
                inference_tokens=1e20,  # type: ignore[arg-type]
            )
            for one in found.answers.values():
                assert (one.overtrained is None) == (one.frontier.law is None)
                if one.overtrained is not None and one.served is not None:
                    assert one.overtrained.training >= 1 - 1e-6
                    assert 0 < one.served.whole <= 1 + 1e-6


@pytest.mark.parametrize(
    ("name", "power"),
    [
        ("Hoffmann 1", 0.50),
        ("Hoffmann 2", 0.49),
        ("Hoffmann 3", 0.46),
        ("Hoffmann 3, unrounded", 0.457),
        ("Besiroglu", 0.513),
        ("Kaplan, C_min = C", 0.73),
    ],
)
def test_exponents_are_the_published_ones(name: str, power: float) -> None:
    assert exponent(FRONTIERS[name]) == pytest.approx(power, abs=0.005)


def test_a_tilted_curve_has_its_exponent_and_agrees_at_one_compute() -> None:
    curve = Minimum(BESIROGLU)
    tilted = Tilted(curve, 0.6, 6e18)
    assert exponent(tilted) == pytest.approx(0.6)
    assert tilted.at(6e18).parameters == pytest.approx(curve.at(6e18).parameters)
    assert 6 * tilted.at(1e22).parameters * tilted.at(1e22).tokens == pytest.approx(1e22)


@pytest.mark.parametrize("name", ["Hoffmann 1", "Hoffmann 2", "Besiroglu"])
def test_intervals_contain_the_law_and_grow_with_compute(name: str) -> None:
    law = FRONTIERS[name]
    assert law.spread is not None
    widths = []
    for flops in (1e20, 1e22, 1e24):
        low, high = law.spread.interval(lambda curve, flops=flops: curve.at(flops).parameters)  # type: ignore[misc]
        assert low < law.at(flops).parameters < high
        widths.append(np.log(high / low))
    assert widths == sorted(widths)


def test_the_interval_of_the_published_errors_is_about_that_of_a_bootstrap(shared: Callable[[str], Path]) -> None:
    """The independent reference: the same law, fitted anew to drawn points of the paper's figure."""
    points = read_points(shared("chinchilla/hoffmann_figure4_extracted.csv")).without_highest(5)
    draws = bootstrap(fit(points), 100)
    spread = FRONTIERS["Besiroglu"].spread
    assert spread is not None
    for flops in (1e21, 1e23, 1e25):
        low, high = spread.interval(lambda curve, flops=flops: curve.at(flops).parameters)  # type: ignore[misc]
        ends = np.quantile([law.optimum(flops)[0] for law in draws], (0.1, 0.9))
        assert np.log(high / low) == pytest.approx(np.log(ends[1] / ends[0]), rel=0.35)


def _tokens(law: Law, parameters: float, loss: float) -> float:
    """The closed form of D, by which a model of N parameters has a loss."""
    constants = law.printed
    rest = loss - constants["E"] - constants["A"] / parameters ** constants["α"]
    return float((constants["B"] / rest) ** (1 / constants["β"]))


@pytest.mark.parametrize("ratio", [1.0, 20.0, 200.0, 10_000.0])
def test_an_overtrained_model_has_the_loss_and_the_ratio(ratio: float) -> None:
    best = Minimum(BESIROGLU).at(1e22)
    found = overtrained_model(BESIROGLU, best, ratio)
    assert found.model.tokens_per_parameter == pytest.approx(ratio)
    assert float(BESIROGLU.loss(found.model.parameters, found.model.tokens)) == pytest.approx(best.loss, rel=1e-9)
    assert found.model.tokens == pytest.approx(_tokens(BESIROGLU, found.model.parameters, best.loss or 0.0))
    assert found.training >= 1.0
    assert (found.size < 1.0) == (ratio > best.tokens_per_parameter)


def test_the_optimums_own_ratio_costs_nothing() -> None:
    best = Minimum(BESIROGLU).at(1e22)
    found = overtrained_model(BESIROGLU, best, best.tokens_per_parameter)
    assert (found.size, found.training) == (pytest.approx(1.0), pytest.approx(1.0))


@pytest.mark.parametrize("inference", [1.0, 1e10, 2e12, 1e15])
def test_a_served_model_is_cheaper_than_its_neighbours(inference: float) -> None:
    best = for_parameters(FRONTIERS["Besiroglu"], 13e9)
    found = serving_model(BESIROGLU, best, inference)

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
    assert serving_model(BESIROGLU, best, 1.0).size == pytest.approx(1.0, abs=1e-3)


def test_the_figure_of_sardana_et_al() -> None:
    """Their figure 1: 13 B parameters and 2 T tokens of inference; 7 B parameters take 1.7e22 FLOPs, 17 %, less."""
    law = FRONTIERS["Hoffmann 3, unrounded"]
    assert law.law is not None
    best = for_parameters(law, 13e9)
    found = serving_model(law.law, best, 2e12)
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
    found = overtrained_model(Other(), best, 90.0)  # type: ignore[arg-type]
    # With x = 1e10/N, the sum is 2x at D = 10·N, and x·(1 + 1/9) at D = 90·N.
    assert found.size == pytest.approx(10 / 18)
    assert isinstance(found.model, Optimum)
