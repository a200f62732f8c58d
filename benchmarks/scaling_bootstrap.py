"""Seconds of a fit of approach 3 with 1,000 draws of the bootstrap, on the published points of Chinchilla.

python benchmarks/scaling_bootstrap.py POINTS.csv       # the 245 points of Besiroglu et al. 2024; an idle machine

The five highest losses are left out. The bar is 60 s on two cores, and intervals repeat for a seed.
"""

import sys
import time
from pathlib import Path

from assay.scaling.fitting import bootstrap, fit
from assay.scaling.law_intervals import extrapolation, interval
from assay.scaling.points import read_points

DRAWS = 1000


def main(path: Path) -> None:
    """Print the seconds of a fit, of its draws and of its hold-outs, and the intervals."""
    points = read_points(path).without_highest(5)
    started = time.perf_counter()
    found = fit(points)
    fitted = time.perf_counter()
    laws = bootstrap(found, DRAWS)
    drawn = time.perf_counter()
    extrapolation(found)
    done = time.perf_counter()
    print(f"{len(points)} points, objective {found.objective:.7f}")
    print(f"fit {fitted - started:.1f} s, {DRAWS} draws {drawn - fitted:.1f} s, hold-outs {done - drawn:.1f} s")
    for name, value in found.law.printed.items():
        low, high = interval(laws, lambda law, name=name: law.printed[name])
        print(f"{name} {value:.5g}, 95 % {low:.5g} to {high:.5g}")
    again = bootstrap(found, DRAWS)
    print("repeats for a seed" if again == laws else "DOES NOT REPEAT")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
