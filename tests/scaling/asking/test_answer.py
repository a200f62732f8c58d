"""Answers: marks and refusals by distance, intervals of what was not given, growth, text and bills."""

import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.asking.answer import answer
from assay.scaling.asking.text import Text
from assay.scaling.published import FRONTIERS


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
