"""Agreement and noise of several gradients, from the dot products of all pairs.

The gradient of b sequences is the true gradient G plus noise with the covariance Σ/b. So the expected squared norm is
|G|² + tr(Σ)/b. The squared norms of one micro-batch and of the mean of n of them are two such equations. Their solution
is unbiased (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1):

    |G|²  = (n·|mean|² − mean|micro|²) / (n − 1)
    tr(Σ) = n·b · (mean|micro|² − |mean|²) / (n − 1)

The noise scale tr(Σ)/|G|² is about the batch size from which larger batches help little.
"""

from math import sqrt

import numpy as np
import numpy.typing as npt

from assay.records.gradients import NoiseScale

Gram = npt.NDArray[np.float64]
"""Dot products of every pair of gradients, `[n, n]`."""


def mean_cosine(products: Gram) -> float | None:
    """Return the mean cosine between two different gradients; None for fewer than two, or if one is zero."""
    norms = np.sqrt(np.diag(products))
    if len(norms) < 2 or not norms.all():
        return None
    cosines = products / np.outer(norms, norms)
    return float((cosines.sum() - np.trace(cosines)) / (len(norms) * (len(norms) - 1)))


def noise_scale(products: Gram, sequences: int) -> NoiseScale | None:
    """Return the noise scale from gradients of `sequences` sequences each.

    The result is None for fewer than two gradients, and if the estimate of |G|² is not positive.
    """
    if len(products) < 2:
        return None
    squared, noise = _solved(products, sequences)
    if squared <= 0:
        return None
    return NoiseScale(
        sequences=noise / squared,
        standard_error=_standard_error(products, sequences),
        squared_gradient=squared,
        noise=noise,
    )


def _solved(products: Gram, sequences: int) -> tuple[float, float]:
    """Return the estimates of |G|² and tr(Σ)."""
    count = len(products)
    of_mean, of_one = float(products.mean()), float(np.trace(products)) / count
    return (count * of_mean - of_one) / (count - 1), count * sequences * (of_one - of_mean) / (count - 1)


def _standard_error(products: Gram, sequences: int) -> float | None:
    """Return the jackknife's standard error: every gradient is left out once (Efron 1982)."""
    count = len(products)
    if count < 3:
        return None
    scales = []
    for left_out in range(count):
        kept = [place for place in range(count) if place != left_out]
        squared, noise = _solved(products[np.ix_(kept, kept)], sequences)
        if squared <= 0:
            return None
        scales.append(noise / squared)
    return sqrt((count - 1) * float(np.var(scales)))
