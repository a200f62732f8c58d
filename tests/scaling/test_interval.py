"""Intervals of predicted losses: quantiles of draws with noise, also where one draw is far off."""

import numpy as np
import pytest

from assay.scaling.fitting import fit
from assay.scaling.interval import of_losses
from assay.scaling.laws import form_named
from support.laws import design, drawn, known_law


def test_equal_draws_leave_the_scatter_of_the_fit() -> None:
    law, noise = known_law("hoffmann"), 0.01
    found = fit(drawn(law, 200, 1, noise), law.form)
    points = design(20, 2)
    low, high = of_losses(found, [found.law] * 2000, points)
    assert np.log(high / found.law.losses(points)) == pytest.approx(np.full(20, 1.96 * noise), rel=0.2)
    assert np.log(found.law.losses(points) / low) == pytest.approx(np.full(20, 1.96 * noise), rel=0.2)


def test_a_draw_beyond_the_largest_number_leaves_finite_ends() -> None:
    law = known_law("hoffmann")
    found = fit(drawn(law, 40, 1, 0.01), law.form)
    far = form_named("hoffmann").of(1.0, 1e300, 1e300, -5.0, -5.0)
    low, high = of_losses(found, [found.law] * 199 + [far], design(20, 2))
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low < high).all()
