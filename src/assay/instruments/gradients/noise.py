"""Agreement and noise of several gradients, from sums over them.

The gradient of b sequences is the true gradient G plus noise with the covariance Σ/b. So the expected squared norm is
|G|² + tr(Σ)/b. The squared norms of one micro-batch and of the mean of n of them are two such equations. Their solution
is unbiased (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1):

    |G|²  = (n·|mean|² − mean|micro|²) / (n − 1)
    tr(Σ) = n·b · (mean|micro|² − |mean|²) / (n − 1)

The noise scale tr(Σ)/|G|² is about the batch size from which larger batches help little. No pair of gradients has to be
held together: with unit vectors uᵢ = gᵢ/|gᵢ|, the cosines of all pairs sum to |Σ uᵢ|² − n.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from assay.records.gradients import NoiseScale

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    """Sums over n gradients gᵢ, whose sum is S."""

    squares: Vector
    """|gᵢ|² of each, `[n]`."""
    with_sum: Vector
    """gᵢ·S of each, `[n]`."""
    unit_square: float
    """|Σ gᵢ/|gᵢ||²; of no use if a gradient is zero."""

    @property
    def square_of_mean(self) -> float:
        """Squared norm of the mean gradient."""
        return max(0.0, float(self.with_sum.sum())) / len(self.squares) ** 2


def mean_cosine(sums: Sums) -> float | None:
    """Return the mean cosine between two different gradients; None for fewer than two, or if one is zero."""
    count = len(sums.squares)
    if count < 2 or not sums.squares.all():
        return None
    return (sums.unit_square - count) / (count * (count - 1))


def noise_scale(sums: Sums, sequences: int) -> NoiseScale | None:
    """Return the noise scale from gradients of `sequences` sequences each.

    The result is None for fewer than two gradients, and if the estimate of |G|² is not positive.
    """
    count = len(sums.squares)
    if count < 2:
        return None
    squared, noise = _solved(count, sequences, np.asarray(sums.square_of_mean), sums.squares.mean())
    if squared <= 0:
        return None
    return NoiseScale(
        sequences=float(noise / squared),
        standard_error=_standard_error(sums, sequences),
        squared_gradient=float(squared),
        noise=float(noise),
    )


def _solved(count: int, sequences: int, of_mean: Vector, of_one: Vector) -> tuple[Vector, Vector]:
    """Return the estimates of |G|² and tr(Σ) from |mean|² and mean|micro|²."""
    return (count * of_mean - of_one) / (count - 1), count * sequences * (of_one - of_mean) / (count - 1)


def _standard_error(sums: Sums, sequences: int) -> float | None:
    """Return the jackknife's standard error: every gradient is left out once (Efron 1982)."""
    count = len(sums.squares)
    if count < 3:
        return None
    kept = count - 1
    of_mean = (sums.with_sum.sum() - 2 * sums.with_sum + sums.squares) / kept**2
    squared, noise = _solved(kept, sequences, of_mean, (sums.squares.sum() - sums.squares) / kept)
    if (squared <= 0).any():
        return None
    return sqrt((count - 1) * float(np.var(noise / squared)))
