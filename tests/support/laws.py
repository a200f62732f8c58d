"""Known laws, and points that are drawn from them."""

from dataclasses import replace

import numpy as np

from assay.scaling.laws import Law, form_named
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Points, planned_points

UNPUBLISHED = {
    "saturating": (1.5, -0.15, 1.7),
    "droppo": (1.2, 60.0, 300.0, 0.25, 0.3, 0.4),
}
"""Constants of laws whose papers print none."""


def known_law(name: str) -> Law:
    """Return a law with the constants of its paper, or with those above."""
    form = form_named(name)
    return form.of(*(next(iter(form.published.values())) if form.published else UNPUBLISHED[name]))


def design(count: int, seed: int) -> Points:
    """Return points without losses, which have each column that a law needs."""
    chance = np.random.default_rng(seed)
    sizes = 10 ** chance.uniform(7.5, 10, count)
    tokens = sizes * 10 ** chance.uniform(0.3, 2.3, count)
    return planned_points(
        parameters=sizes,
        tokens=tokens,
        min_flops=0.5 * FLOPS_PER_PARAMETER_AND_TOKEN * sizes * tokens,
        min_steps=10 ** chance.uniform(3, 5.5, count),
        unique_tokens=tokens / 10 ** chance.uniform(0, 1.5, count),
    )


def drawn(law: Law, count: int, seed: int, noise: float) -> Points:
    """Return points of a law, with relative noise of their losses."""
    some = design(count, seed)
    errors = noise * np.random.default_rng(seed + 1000).standard_normal(count)
    return replace(some, loss=law.losses(some) * np.exp(errors))
