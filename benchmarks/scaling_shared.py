"""How often intervals of a law cover the truth where runs share sizes, by the errors of the runs.

python benchmarks/scaling_shared.py [--sets 120]      # minutes on one core: the table of docs/measured/scaling.md

Runs are a grid: sizes over two and a half decades, each with five amounts of data. Their errors are independent, have
heavy tails, are shared by the runs of one size, or have one run far off. Each data set is fitted and its bootstrap
drawn by the package. The descent starts at the known law, which saves the search for a start. The table goes between
two marks of the page.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.files import write_file
from assay.scaling.descent import DescentProblem, descend
from assay.scaling.fitting import FitResult, bootstrap, law_of
from assay.scaling.law_intervals import quantiles
from assay.scaling.laws import HOFFMANN
from assay.scaling.laws.base import log_losses
from assay.scaling.laws.hoffmann import BESIROGLU
from assay.scaling.points import Points, planned_points

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "scaling.md"
BEGIN, END = "<!-- scaling_shared: begin -->", "<!-- scaling_shared: end -->"
SIZES, RUNS, DRAWS, SETS = (6, 8), 5, 100, 120
OWN, SHARED, OUTLIER = 0.005, 0.01, 0.1
"""Deviation of log L of a run, deviation that a size shares, and the error of one run far off."""
TRUE = HOFFMANN.known(BESIROGLU)
FAR = planned_points(parameters=[3e10], tokens=[6e11])
"""A run of ten times the compute of the largest."""

Errors = NDArray[np.floating[Any]]
ERRORS: dict[str, Callable[[np.random.Generator, int], Errors]] = {
    "independent": lambda chance, sizes: OWN * chance.standard_normal((sizes, RUNS)),
    "t with 3 degrees of freedom": lambda chance, sizes: OWN * chance.standard_t(3, (sizes, RUNS)),
    "shared by a size": lambda chance, sizes: (
        OWN * chance.standard_normal((sizes, RUNS)) + SHARED * chance.standard_normal((sizes, 1))
    ),
    "one run far off": lambda chance, sizes: one_off(chance, sizes),
}


def one_off(chance: np.random.Generator, sizes: int) -> Errors:
    """Independent errors, and one run whose loss is a tenth too high."""
    errors = OWN * chance.standard_normal((sizes, RUNS))
    errors[chance.integers(sizes), chance.integers(RUNS)] += OUTLIER
    return errors


def grid(sizes: int) -> Points:
    """Return the design: every size with every amount of data a parameter."""
    parameters = np.repeat(10 ** np.linspace(7.5, 10, sizes), RUNS)
    return planned_points(parameters=parameters, tokens=parameters * np.tile(10 ** np.linspace(0.3, 2.3, RUNS), sizes))


def covered(errors: str, sizes: int, seed: int) -> dict[str, bool]:
    """Return which intervals of one data set cover the truth."""
    points, chance = grid(sizes), np.random.default_rng([seed, sizes])
    points = replace(points, loss=TRUE.losses(points) * np.exp(ERRORS[errors](chance, sizes).ravel()))
    values = descend(DescentProblem(HOFFMANN, points), TRUE.values[None])[0]
    laws = bootstrap(FitResult(law_of(HOFFMANN, values), 0.0, points), DRAWS, seed)
    found = {}
    for place, constant in enumerate(HOFFMANN.constants):
        low, high = quantiles([law.numbers[place] for law in laws])
        found[constant.symbol] = low <= TRUE.numbers[place] <= high
    low, high = quantiles(log_losses(laws, FAR)[:, 0].tolist())
    return found | {"loss at ten times the compute": bool(low <= float(np.log(TRUE.losses(FAR))[0]) <= high)}


def table(sets: int) -> list[str]:
    """Return the lines of the table."""
    names = [*(one.symbol for one in HOFFMANN.constants), "loss at ten times the compute"]
    lines = [f"| errors | sizes | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 2)}"]
    for errors in ERRORS:
        for sizes in SIZES:
            every = [covered(errors, sizes, seed) for seed in range(sets)]
            shares = (f"{100 * np.mean([one[name] for one in every]):.1f}" for name in names)
            lines.append(f"| {errors} | {sizes} | {' | '.join(shares)} |")
            print(lines[-1], flush=True)
    return lines


def section(sets: int) -> str:
    """Return the section of the page."""
    head = (
        f"`python benchmarks/scaling_shared.py`: {sets} data sets of the law `hoffmann` for each row, {RUNS} runs of "
        f"each size, {DRAWS} draws. Runs deviate by {100 * OWN:g} % of the loss. Where a size shares an error, it "
        f"deviates by {100 * SHARED:g} %. One run far off has a loss {100 * OUTLIER:g} % too high. Shares are "
        "percentages of data sets whose interval of 95 % covers the truth."
    )
    return "\n".join([BEGIN, head, "", *table(sets), END])


def main() -> None:
    """Write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", type=int, default=SETS)
    made = section(parser.parse_args().sets)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
    write_file(PAGE, (before + made + after).encode())


if __name__ == "__main__":
    main()
