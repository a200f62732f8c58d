"""The parametric law L(N, D) = E + A/N^α + B/D^β (Hoffmann et al. 2022, approach 3), and its fit.

The fit minimizes the sum of Huber losses of the residuals of log L, with δ = 0.001. Its variables are a = log A,
b = log B, e = log E, α and β. The logarithm of the law is a log-sum-exp of three linear terms, so nothing overflows.
The best points of the grid of that paper are the starts of `descent`, and L-BFGS finishes the best. Besiroglu et al.
2024 (arXiv:2404.10102) found that the first fit had stopped too early, and repeated it.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from assay.scaling.descent import DELTA, Logs, descend, huber, objectives
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, Points

_GRID = (
    np.arange(0.0, 26.0, 5.0),
    np.arange(0.0, 26.0, 5.0),
    np.arange(-1.0, 1.1, 0.5),
    *(np.arange(0.0, 2.1, 0.5),) * 2,
)
"""Starts of a, b, e, α and β in Hoffmann et al. 2022."""
_STARTS = 60
"""Starts with the lowest objective from which the fit descends."""


@dataclass(frozen=True)
class Parametric:
    """The five constants of the law, as the fit has them."""

    a: float
    b: float
    e: float
    alpha: float
    beta: float

    @classmethod
    def of(cls, irreducible: float, size: float, data: float, alpha: float, beta: float) -> "Parametric":
        """Return the law of E, A, B, α and β, as papers print them."""
        return cls(float(np.log(size)), float(np.log(data)), float(np.log(irreducible)), alpha, beta)

    @property
    def values(self) -> Floats:
        """The constants (a, b, e, α, β)."""
        return np.array([self.a, self.b, self.e, self.alpha, self.beta])

    @property
    def printed(self) -> dict[str, float]:
        """The constants as papers print them: E, A, B, α, β."""
        scales = {"E": np.exp(self.e), "A": np.exp(self.a), "B": np.exp(self.b)}
        return {name: float(value) for name, value in scales.items()} | {"α": self.alpha, "β": self.beta}

    def loss(self, parameters: "Floats | float", tokens: "Floats | float") -> Floats:
        """Return the loss of models with N parameters that train on D tokens."""
        sizes, data = np.asarray(parameters, dtype=float), np.asarray(tokens, dtype=float)
        return np.exp(_log_loss(self.values, np.log(sizes), np.log(data)))

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the N and D with the lowest loss at 6·N·D = `flops` (Hoffmann et al. 2022, equation 4)."""
        each = flops / FLOPS_PER_PARAMETER_AND_TOKEN
        both = self.alpha + self.beta
        scale = np.exp((np.log(self.alpha) + self.a - np.log(self.beta) - self.b) / both)
        return float(scale * each ** (self.beta / both)), float(each ** (self.alpha / both) / scale)


@dataclass(frozen=True)
class Fit:
    """A fitted law, its objective, and the points that it was fitted to."""

    law: Parametric
    objective: float
    points: Points

    @property
    def residuals(self) -> Floats:
        """Logarithm of each loss over the law's."""
        return np.log(self.points.loss) - np.log(self.law.loss(self.points.parameters, self.points.tokens))


def fit(points: Points) -> Fit:
    """Fit the law to points: the lowest objective of several descents."""
    logs = points.logs
    grid = np.array(list(product(*_GRID)))
    starts = grid[np.argsort(objectives(grid, logs), kind="stable")[:_STARTS]]
    reached = descend(starts, logs)
    values, lowest = _finish(reached[int(np.argmin(objectives(reached, logs)))], logs)
    return Fit(Parametric(*map(float, values)), lowest, points)


def bootstrap(found: Fit, draws: int, seed: int = 0) -> list[Parametric]:
    """Return laws that are fitted to points drawn with replacement; each begins from the fitted law."""
    chance, count = np.random.default_rng(seed), len(found.points)
    times_drawn = chance.multinomial(count, np.full(count, 1 / count), size=draws).astype(float)
    reached = descend(np.repeat(found.law.values[None], draws, axis=0), found.points.logs, times_drawn)
    return [Parametric(*map(float, values)) for values in reached]


def objective(law: Parametric, points: Points) -> float:
    """Return the sum of Huber losses of the residuals of log L."""
    return float(objectives(law.values[None], points.logs)[0])


def _finish(start: Floats, logs: Logs) -> tuple[Floats, float]:
    """Return the constants that L-BFGS reaches from a start, and their objective."""
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
    # Multiplied, because the objective is so small that the descent would stop at its absolute tolerances.
    found = minimize(_scaled, start, args=logs, jac=True, method="L-BFGS-B", options=options)
    return found.x, float(found.fun) / _SCALE


_SCALE = 1e3


def _scaled(values: Floats, *logs: Floats) -> tuple[float, Floats]:
    """Return the objective and its gradient, times a constant."""
    sizes, data, losses = logs
    terms = np.stack((values[0] - values[3] * sizes, values[1] - values[4] * data, np.full_like(sizes, values[2])))
    total = logsumexp(terms, axis=0)
    shares = np.exp(terms - total)
    residuals = total - losses
    slopes = np.clip(residuals, -DELTA, DELTA)
    by_term = shares * slopes
    gradient = np.array(
        [by_term[0].sum(), by_term[1].sum(), by_term[2].sum(), -(by_term[0] @ sizes), -(by_term[1] @ data)]
    )
    return _SCALE * float(huber(residuals).sum()), _SCALE * gradient


def _log_loss(values: Floats, sizes: Floats, data: Floats) -> Floats:
    a, b, e, alpha, beta = values
    terms = np.stack(np.broadcast_arrays(a - alpha * sizes, b - beta * data, np.asarray(e)))
    return np.asarray(logsumexp(terms, axis=0))
