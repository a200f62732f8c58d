"""Arithmetic that several laws share: the logarithm of a sum of exponentials, a power law's line, and a balance."""

import numpy as np

from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats


def log_sum(*terms: Floats) -> tuple[Floats, list[Floats]]:
    """Return the logarithm of a sum, and the share of each term in it, from the logarithms of the terms.

    Terms are `[fits, points]`. Nothing overflows, unless a term does.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum.reduce(np.broadcast_arrays(*terms))
        exps = [np.exp(term - most) for term in terms]
        total = np.asarray(sum(exps))
        return most + np.log(total), [one / total for one in exps]


def columns(values: Floats) -> list[Floats]:
    """Return each value of fits as a column `[fits, 1]`, which spreads over points."""
    return [one[:, None] for one in values.T]


def slopes(*each: Floats) -> Floats:
    """Return slopes by each value as one array, `[fits, points, k]`."""
    return np.stack(np.broadcast_arrays(*each), axis=-1)


def line(logs: Floats, losses: Floats) -> tuple[float, float]:
    """Return the level and the exponent of a power law through points: log L = level − exponent · log x."""
    slope, level = np.polyfit(logs, np.log(losses), 1)
    return float(level), float(-slope)


def balance(size: tuple[float, float], data: tuple[float, float], flops: float) -> tuple[float, float] | None:
    """Return the N and D that minimize A/N^α + B/D^β at 6·N·D = `flops`, from (log A, α) and (log B, β).

    It is equation 4 of Hoffmann et al. 2022. None if the loss does not fall with both.
    """
    (a, alpha), (b, beta) = size, data
    if not (alpha > 0 and beta > 0 and np.isfinite((a, b, alpha, beta)).all()):
        return None
    each, both = flops / FLOPS_PER_PARAMETER_AND_TOKEN, alpha + beta
    scale = np.exp((np.log(alpha) + a - np.log(beta) - b) / both)
    return float(scale * each ** (beta / both)), float(each ** (alpha / both) / scale)
