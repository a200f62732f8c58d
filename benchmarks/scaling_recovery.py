"""How often intervals of fitted laws cover the truth: every law, known constants, 40 points, 1 % noise, many data sets.

python benchmarks/scaling_recovery.py [LAW ...] [--sets 200]      # one core; seconds to two minutes a law

Sizes and data are drawn around 20 tokens a parameter over five decades of compute; S_min, C_min and unique tokens are
drawn beside them. A share that is covered is given for each constant, with how often the fit said that the points do
not identify it. It is also given for the law's loss and for new losses within the points, and for new losses at up to a
hundred times their compute, with and without the extrapolation. Intervals are at 95 %.
"""

import argparse
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np

from assay.scaling.fitted import FittedLaw
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.law_intervals import extents, extrapolation, of_losses
from assay.scaling.laws import Law, form_named, forms
from assay.scaling.laws.base import log_losses
from assay.scaling.points import Floats, Points, planned_points

TRUTHS = {
    "saturating": (1.75, -0.165, 1.74),
    "droppo": (1.5, 60.0, 500.0, 0.25, 0.3, 0.4),
}
"""Constants of laws whose papers print none; those of the others are published."""
POINTS, NOISE, DRAWS, SETS = 40, 0.01, 200, 200


def truth(name: str) -> Law:
    """Return the law whose constants a fit should recover."""
    form = form_named(name)
    return form.of(*(TRUTHS[name] if name in TRUTHS else next(iter(form.published.values()))))


def points_of(law: Law, count: int, chance: np.random.Generator, above: float = 0.0) -> Points:
    """Return points with noise; `above` moves their compute, in powers of ten."""
    each = 10 ** (chance.uniform(17.5, 22.5, count) / 2 + above / 2) / np.sqrt(6)
    skew = 10 ** chance.uniform(-0.5, 0.5, count)
    sizes, tokens = each / np.sqrt(20) * skew, each * np.sqrt(20) / skew
    points = planned_points(
        parameters=sizes,
        tokens=tokens,
        min_flops=3 * sizes * tokens,
        min_steps=10 ** chance.uniform(3, 5.5, count),
        unique_tokens=tokens / 10 ** chance.uniform(0, 2, count),
    )
    return replace(points, loss=law.losses(points) * np.exp(NOISE * chance.standard_normal(count)))


def covered(law: Law, seed: int) -> dict[str, float]:
    """Return the shares that the intervals of one data set cover."""
    chance = np.random.default_rng(seed)
    found = fit(points_of(law, POINTS, chance), law.form)
    fitted = FittedLaw(found, tuple(bootstrap(found, DRAWS, seed)), 0, extrapolation=extrapolation(found))
    shares = {name: float(low <= law.printed[name] <= high) for name, (low, high) in fitted.intervals.items()}
    shares |= {f"{name} not identified": float(name in fitted.unidentified) for name in law.printed}
    near, far = points_of(law, 100, chance), points_of(law, 100, chance, above=2.0)
    far = far.where(extents(far, law.form) > extents(found.points, law.form).max())
    ends: tuple[Floats, Floats] = tuple(np.exp(np.quantile(log_losses(fitted.draws, near), (0.025, 0.975), axis=0)))
    shares["the law's loss"] = share(ends, law.losses(near))
    shares["new losses within"] = share(fitted.intervals_of(near), near.loss)
    shares["new losses beyond, bootstrap"] = share(of_losses(found, fitted.draws, far), far.loss)
    shares["new losses beyond"] = share(fitted.intervals_of(far), far.loss)
    return shares


def recovery(law: Law, sets: int = SETS) -> dict[str, float]:
    """Return the mean share of each figure over data sets."""
    every = defaultdict(list)
    for seed in range(sets):
        for name, one in covered(law, seed).items():
            every[name].append(one)
    return {name: float(np.mean(shares)) for name, shares in every.items()}


def share(ends: tuple[Floats, Floats], losses: Floats) -> float:
    """Return the share of losses that lie within their intervals."""
    return float(np.mean((ends[0] <= losses) & (losses <= ends[1])))


def show(name: str, sets: int) -> None:
    """Print the shares of one law."""
    started = time.perf_counter()
    shares, law = recovery(truth(name), sets), truth(name)
    print(f"{name}, {sets} data sets, {time.perf_counter() - started:.0f} s")
    for constant in law.printed:
        unsure = shares[f"{constant} not identified"]
        print(f"  {constant:30} {shares[constant]:.3f}   not identified {unsure:.2f}")
    for figure, one in shares.items():
        if "loss" in figure:
            print(f"  {figure:30} {one:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Coverage of intervals of fitted laws.")
    parser.add_argument("laws", nargs="*", help="laws; default: all")
    parser.add_argument("--sets", type=int, default=SETS)
    asked = parser.parse_args()
    for one in asked.laws or forms():
        show(one, asked.sets)
