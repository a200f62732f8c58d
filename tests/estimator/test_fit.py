"""A need between two bounds against the memory that is there."""

import pytest

from assay.cost.simulation.reserved import Interval
from assay.estimator.fit import Fit, fit


@pytest.mark.parametrize(("there", "says"), [(9, Fit.NO), (10, Fit.MAYBE), (19, Fit.MAYBE), (20, Fit.YES)])
def test_the_upper_bound_decides_whether_it_fits(there: int, says: Fit) -> None:
    assert fit(Interval(10, 20), there) is says
