"""Published answers to the question how large a model and how much data make the most of a compute budget.

Each has its own way to count. Kaplan's N has no embeddings, and its C_min is the compute of training at a small batch,
about half of what a run spends. Hoffmann's N has embeddings, and C = 6·N·D.

Of the approaches of Hoffmann et al. the paper has tables of optima (tables 3 and A3). A line is drawn through the
logarithms of their rows. The constants of approach 3 are rounded in the paper, which changes its optimum. Besiroglu et
al. give the unrounded ones. Their optimum still has 6 to 15 % more tokens than the table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq

from assay.scaling.parametric import Parametric
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN

PETAFLOP_DAY = 1e15 * 86400
"""FLOPs of one PF-day."""
_POWERS = (-40.0, 90.0)
"""Powers of ten of the FLOPs among which an optimum is searched."""


class Optimum(NamedTuple):
    """The best size and data for some compute, by one law."""

    parameters: float
    tokens: float
    flops: float
    loss: float | None
    """Loss in nats per token, if the law states it. It is that of the paper's text and tokenizer."""

    @property
    def tokens_per_parameter(self) -> float:
        """D/N."""
        return self.tokens / self.parameters


class Frontier(Protocol):
    """A law that has an optimum for any compute."""

    @property
    def source(self) -> str:
        """Paper, and how it counts."""
        ...

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        ...


@dataclass(frozen=True)
class Minimum:
    """The minimum of a parametric law."""

    law: Parametric
    source: str

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        parameters, tokens = self.law.optimum(flops)
        return Optimum(parameters, tokens, flops, float(self.law.loss(parameters, tokens)))


@dataclass(frozen=True)
class Line:
    """Tokens as a power of parameters, through the rows of a table."""

    rows: tuple[tuple[float, float], ...]
    """(N, D) of each row."""
    source: str

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        sizes, data = np.log(np.array(self.rows)).T
        power, level = np.polyfit(sizes, data, 1)
        each = np.log(flops / FLOPS_PER_PARAMETER_AND_TOKEN)
        parameters = float(np.exp((each - level) / (1 + power)))
        return Optimum(parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters, flops, None)


@dataclass(frozen=True)
class Kaplan:
    """N = 1.3e9 · C_min^0.73 with C_min in PF-days (Kaplan et al. 2020, section 6.1)."""

    share: float
    """C_min over the training FLOPs."""
    source: str

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        parameters = 1.3e9 * (self.share * flops / PETAFLOP_DAY) ** 0.73
        return Optimum(parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters, flops, None)


_HOFFMANN = "Hoffmann et al. 2022 (arXiv:2203.15556)"
_KAPLAN = "Kaplan et al. 2020 (arXiv:2001.08361), N without embeddings"

BESIROGLU = Parametric.of(1.8172, 482.01, 2085.43, 0.3478, 0.3658)
"""Law of Besiroglu et al. 2024."""

FRONTIERS: Mapping[str, Frontier] = {
    "Hoffmann 1": Line(
        ((1e9, 20.2e9), (10e9, 205.1e9), (67e9, 1.5e12), (175e9, 3.7e12), (1e12, 21.2e12)),
        f"{_HOFFMANN}, approach 1, the envelope of training curves",
    ),
    "Hoffmann 2": Line(
        ((1e9, 20.0e9), (10e9, 219.5e9), (67e9, 1.7e12), (175e9, 4.3e12), (1e12, 26.5e12)),
        f"{_HOFFMANN}, approach 2, parabolas at equal compute",
    ),
    "Hoffmann 3": Line(
        ((1e9, 27.1e9), (10e9, 410.1e9), (67e9, 4.1e12), (175e9, 12.0e12), (1e12, 94.1e12)),
        f"{_HOFFMANN}, approach 3, the parametric law, by its table",
    ),
    "Hoffmann 3, unrounded": Minimum(
        Parametric(6.0073404, 6.0179186, 0.5267228, 0.33917084, 0.2849083),
        f"{_HOFFMANN}, approach 3, with the unrounded constants of Besiroglu et al. 2024",
    ),
    "Hoffmann 3, rounded": Minimum(
        Parametric.of(1.69, 406.4, 410.7, 0.34, 0.28), f"{_HOFFMANN}, approach 3, with its rounded constants"
    ),
    "Besiroglu": Minimum(
        BESIROGLU,
        "Besiroglu et al. 2024 (arXiv:2404.10102), approach 3 repeated",
    ),
    "Kaplan, C_min = C/2": Kaplan(0.5, f"{_KAPLAN}; half of the training compute counts"),
    "Kaplan, C_min = C": Kaplan(1.0, f"{_KAPLAN}; all of the training compute counts"),
}
"""Published optima, by the name of their law."""


def for_parameters(frontier: Frontier, parameters: float) -> Optimum:
    """Return the optimum whose model has so many parameters."""
    return _solved(frontier, lambda found: np.log(found.parameters / parameters))


def for_tokens(frontier: Frontier, tokens: float) -> Optimum:
    """Return the optimum whose training has so many tokens."""
    return _solved(frontier, lambda found: np.log(found.tokens / tokens))


def _solved(frontier: Frontier, miss: Callable[[Optimum], float]) -> Optimum:
    logs = brentq(lambda power: miss(frontier.at(10.0**power)), *_POWERS, xtol=1e-12)
    return frontier.at(10.0**logs)
