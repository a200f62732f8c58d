"""A need between two bounds against the memory that is there."""

import pytest

from assay.cost.simulation.reserved import Interval
from assay.estimator.fit import verdict


@pytest.mark.parametrize(("memory", "words"), [(9, "does not fit"), (10, "may fit"), (19, "may fit"), (20, "fits")])
def test_the_verdict_has_both_bounds(memory: int, words: str) -> None:
    assert verdict(Interval(10, 20), memory) == words
