"""Errors that all runs of one size share, such as that of a learning rate that suits one size better than another.

A bootstrap of single runs takes their errors as independent, and so does not see such an error. The residuals show it:
those of one size lie together, farther from zero than their scatter within the size explains. With H the projection on
the slopes of the law and P the mean of each size, residuals are r = (I − H)·(shared + own). The expected sums of
squares between and within sizes follow from both variances, and these from the sums (Henderson 1953, Biometrics 9).

    between = r'Pr,        within = r'(I − P)r

If all errors are independent, drawing shared ones only widens intervals. So shared ones are drawn if an F test of both
sums has a probability below `SHOWN`. That level is high, because an error that is missed costs more.

A few sizes leave the variance between them uncertain. So each draw of a bootstrap has another one, by the χ² of its sum
of squares, which makes intervals like those of Student's t. A single run far off is no shared error, so residuals are
limited about the median of their size.

Where every run has a size of its own, or a law has no sizes, no error is shared. Where sizes are hardly more than the
constants that they determine, nothing is left between them that could show one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc

from assay.scaling.descent import DescentProblem
from assay.scaling.points import Floats

SHOWN = 0.25
"""Level of the F test from which shared errors are drawn."""
_LIMIT = 3.0
"""Residuals are at most so many deviations from the median of their size."""
_NORMAL = 1.4826
"""Deviation of a normal variable over its median absolute deviation."""


@dataclass(frozen=True)
class Shared:
    """Variances of log L between sizes and within them, as sums of squares."""

    place: npt.NDArray[np.int_]
    """The size of each run, as a number."""
    between: float
    within: float
    degrees: tuple[float, float]
    """Degrees of freedom of both sums."""
    weight: float
    """Share of the variance of shared errors in the sum between sizes."""
    groups: int
    """Runs that a bootstrap draws by themselves; those of one trunk count as one."""

    @property
    def shown(self) -> bool:
        """Whether sizes differ by more than the scatter within them explains."""
        between, within = (
            square / free for square, free in zip((self.between, self.within), self.degrees, strict=True)
        )
        return within == 0 or float(fdtrc(*self.degrees, between / within)) < SHOWN

    def variance(self, between: "Floats | float" = 1.0, within: "Floats | float" = 1.0) -> Floats:
        """Return the variance of shared errors, with factors of both mean squares."""
        free = self.degrees[0]
        own = self.within / max(self.degrees[1], 1.0) * within
        return np.asarray(np.maximum(self.between * between - own * free, 0.0) / self.weight)

    def drawn(self, draws: int, chance: np.random.Generator) -> Floats:
        """Return shared errors of each draw, `[draws, runs]`."""
        free, own = self.degrees
        scales = self.variance(free / chance.chisquare(free, draws), own / chance.chisquare(own, draws))
        sizes = int(self.place.max()) + 1
        # Drawing runs already moves the mean of a size by its share.
        scales = scales * max(0.0, 1 - sizes / self.groups)
        return np.asarray(np.sqrt(scales)[:, None] * chance.standard_normal((draws, sizes)))[:, self.place]


def repeats_sizes(problem: DescentProblem) -> bool:
    """Return whether several runs have one size, so that they may share an error."""
    sizes = problem.points.parameters
    return "parameters" in problem.form.needs and len(np.unique(sizes)) < len(sizes)


def shared_errors(problem: DescentProblem, values: Floats) -> Shared | None:
    """Return the errors that runs of one size share about a fit; None where the points cannot show any."""
    if not repeats_sizes(problem):
        return None
    _, place = np.unique(problem.points.parameters, return_inverse=True)
    residuals, slopes = (one[0] for one in problem.residuals(values[None]))
    scale = np.sqrt((slopes**2).sum(axis=0))
    slopes = slopes[:, scale > 0] / scale[scale > 0]
    groups = (place[:, None] == np.arange(place.max() + 1)).astype(float)
    means = groups / np.sqrt(groups.sum(axis=0))
    free = np.eye(len(residuals)) - slopes @ np.linalg.pinv(slopes)
    own = float(np.trace(means.T @ free @ means))
    degrees = own, float(np.trace(free)) - own
    if degrees[0] < 1 or degrees[1] < 1:
        return None
    limited = _limited(residuals, place)
    between = float(((means.T @ limited) ** 2).sum())
    weight = float(((means.T @ free @ groups) ** 2).sum())
    drawn = int(problem.points.drawn_together.max()) + 1
    return Shared(place, between, float((limited**2).sum()) - between, degrees, weight, drawn)


def _limited(residuals: Floats, place: npt.NDArray[np.int_]) -> Floats:
    middle = np.array([np.median(residuals[place == one]) for one in range(place.max() + 1)])[place]
    apart = residuals - middle
    # A median of few runs is one of them, whose distance of zero says nothing.
    most = _LIMIT * _NORMAL * float(np.median(np.abs(apart[apart != 0]))) if np.any(apart) else 0.0
    return np.asarray(middle + np.clip(apart, -most, most))
