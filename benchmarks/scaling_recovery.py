"""How often intervals of a fitted law cover the truth: laws that are known, 40 points, 1 % noise, many data sets.

python benchmarks/scaling_recovery.py [DATA SETS]        # 200 by default, a few minutes of one core

Points are drawn around 20 tokens a parameter over five decades of compute. A share that is covered is given for each
constant, for the law's loss at the optima within the points, for new losses within them, and for new losses at up to a
hundred times their compute, with and without the extrapolation.
"""

import sys
from collections import defaultdict

import numpy as np

from assay.scaling.extrapolation import extrapolation
from assay.scaling.fitted import FittedLaw
from assay.scaling.interval import of_losses
from assay.scaling.parametric import Parametric, bootstrap, fit
from assay.scaling.points import Floats, Points
from assay.scaling.published import BESIROGLU

LAWS = {
    "Besiroglu": BESIROGLU,
    "Hoffmann, unrounded": Parametric(6.0073404, 6.0179186, 0.5267228, 0.33917084, 0.2849083),
}
POINTS, NOISE, DRAWS, SETS = 40, 0.01, 200, 200


def points_of(law: Parametric, count: int, chance: np.random.Generator, above: float = 0.0) -> Points:
    """Return points with noise; `above` moves their compute, in powers of ten."""
    each = 10 ** (chance.uniform(17.5, 22.5, count) / 2 + above / 2) / np.sqrt(6)
    skew = 10 ** chance.uniform(-0.5, 0.5, count)
    sizes, tokens = each / np.sqrt(20) * skew, each * np.sqrt(20) / skew
    return Points(sizes, tokens, law.loss(sizes, tokens) * np.exp(NOISE * chance.standard_normal(count)))


def covered(law: Parametric, seed: int) -> dict[str, float]:
    """Return the shares that the intervals of one data set cover."""
    chance = np.random.default_rng(seed)
    found = fit(points_of(law, POINTS, chance))
    fitted = FittedLaw(found, tuple(bootstrap(found, DRAWS, seed)), 0, extrapolation=extrapolation(found))
    shares = {name: float(low <= law.printed[name] <= high) for name, (low, high) in fitted.intervals.items()}
    near, far = points_of(law, 100, chance), points_of(law, 100, chance, above=2.0)
    far = far.where(far.flops > found.points.flops.max())
    logs = np.log([one.loss(near.parameters, near.tokens) for one in fitted.draws])
    ends: tuple[Floats, Floats] = tuple(np.exp(np.quantile(logs, (0.025, 0.975), axis=0)))
    truth = law.loss(near.parameters, near.tokens)
    shares["the law's loss"] = _share(ends, truth)
    shares["new losses within"] = _share(fitted.intervals_of(near), near.loss)
    shares["new losses beyond, bootstrap"] = _share(of_losses(found, fitted.draws, far), far.loss)
    shares["new losses beyond"] = _share(fitted.intervals_of(far), far.loss)
    return shares


def recovery(law: Parametric, sets: int = SETS) -> dict[str, float]:
    """Return the mean share of each figure over data sets."""
    every = defaultdict(list)
    for seed in range(sets):
        for name, share in covered(law, seed).items():
            every[name].append(share)
    return {name: float(np.mean(shares)) for name, shares in every.items()}


def _share(ends: tuple[Floats, Floats], losses: Floats) -> float:
    return float(np.mean((ends[0] <= losses) & (losses <= ends[1])))


if __name__ == "__main__":
    for name, law in LAWS.items():
        print(name)
        for figure, share in recovery(law, int(sys.argv[1]) if len(sys.argv) > 1 else SETS).items():
            print(f"  {figure:30} {share:.3f}")
