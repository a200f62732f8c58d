"""Envelopes of training curves: they find the optimum of a known law, and refuse what is no curve."""

from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.approaches.envelope import TrainingCurve, envelope
from support.laws import known_law

TRUE = known_law("hoffmann")
EXPONENT = 0.3658 / (0.3478 + 0.3658)


def curves(count: int) -> list[TrainingCurve]:
    sizes = np.geomspace(1e7, 1e10, count)
    seen = [np.geomspace(size, 400 * size, 100) for size in sizes]
    return [TrainingCurve(float(n), d, TRUE.loss(n, d)) for n, d in zip(sizes, seen, strict=True)]


def test_the_exponents_are_those_of_the_law() -> None:
    found = envelope(curves(30), draws=30)
    assert found.optima.size.exponent == pytest.approx(EXPONENT, abs=0.01)
    assert found.optima.size.interval is not None
    low, high = found.optima.size.interval
    assert low < EXPONENT < high
    assert found.optima.at(1e20)[0] == pytest.approx(TRUE.optimum(1e20)[0], rel=0.1)
    assert found.loss == pytest.approx([float(TRUE.loss(*TRUE.optimum(flops))) for flops in found.flops], rel=0.5)


def test_the_lowest_loss_is_that_of_the_best_curve() -> None:
    some = curves(6)
    found = envelope(some, draws=2)
    place = len(found.flops) // 2
    each = [np.interp(found.flops[place], one.flops, one.loss, left=np.inf, right=np.inf) for one in some]
    assert found.loss[place] == pytest.approx(min(each), rel=1e-3)
    assert found.parameters[place] == some[int(np.argmin(each))].parameters
    assert "of the computes count" in found.optima.warnings[0]


def test_curves_are_read_by_run_or_by_size(tmp_path: Path) -> None:
    some = curves(8)
    rows = [f"{one.parameters},{d},{loss}" for one in some for d, loss in zip(one.tokens, one.loss, strict=True)]
    path = tmp_path / "curves.csv"
    path.write_text("\n".join(["parameters,tokens,loss", *reversed(rows)]), encoding="utf-8")
    assert scaling.envelope(path, draws=5).optima.size == envelope(some[::-1], 5).optima.size
    named = [f"{row},{'a' if number % 2 else 'b'}" for number, row in enumerate(rows)]
    path.write_text("\n".join(["parameters,tokens,loss,run", *named]), encoding="utf-8")
    with pytest.raises(UsageError, match="run b has several sizes"):
        scaling.envelope(path)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (curves(2), "the curves are of 2 sizes"),
        (
            [*curves(3), TrainingCurve(1e8, np.array([2.0, 1.0]), np.array([3.0, 3.0]))],
            "the curve of 100M parameters do not increase",
        ),
        (
            [TrainingCurve(1e8, np.array([1.0, 2.0]), np.array([3.0, np.nan]))],
            "the curve of 100M parameters has a size, tokens or a loss",
        ),
        (
            [TrainingCurve(1e8, np.array([1.0]), np.array([3.0]))],
            "the curve of 100M parameters needs two or more tokens",
        ),
    ],
)
def test_a_file_without_curves_is_a_sentence(made: list[TrainingCurve], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        envelope(made)
