"""The best size and data for a compute, with intervals; how they grow, and models off the optimum.

A token of a byte-pair vocabulary of tens of thousands of words has 4 to 5 bytes of English text. Common Crawl counts as
the text of 84 of its crawls, to 2023: 100 trillion tokens in five languages, before duplicates are left out
(RedPajama-V2, arXiv:2411.12372; 30 trillion without duplicates). One crawl, that of May 2024, has 2.7 billion pages and
377 TiB with all markup (commoncrawl.org), most of which is no text.

Where N is a power of C, its factor is the same from any start. A run off the optimum keeps its distance from it if its
N and D are multiplied by the factors of the optimum.

An answer beyond 100 times the compute of the largest fitted run is marked. Beyond 10,000 times it is refused, unless
the user insists. It then keeps its compute only.

Training takes 6·N·D FLOPs, and inference 2·N for each of T tokens. A smaller model with more data reaches the same
loss. It takes more training and less inference (Sardana et al. 2023, arXiv:2401.00448):

    minimize 6·N·D + 2·N·T  where  L(N, D) = loss

Both are found by bisection and Brent's method on logarithms, so any law of the loss can be asked. FLOPs are those of
ideal hardware. Generation is limited by bandwidth rather than products, so its true price is often higher.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from assay.errors import UsageError
from assay.estimator.cost import FlopsCost
from assay.scaling.fitted import MARKED, REFUSED
from assay.scaling.frontier import Frontier, Interval, LossLaw, Optimum, OptimumCurve, for_parameters, for_tokens
from assay.scaling.points import PLAIN, Accounting

INFERENCE_FLOPS = 2.0
"""FLOPs of inference for each parameter and token."""
_POWERS = (-20.0, 60.0)
"""Powers of ten of the sizes and data that are searched."""
_ENDLESS = 1e60
"""Tokens after which no law's loss falls any more."""


class OtherSize(NamedTuple):
    """A model with the loss of an optimum, but another size."""

    model: Optimum
    optimum: Optimum
    inference_tokens: float
    """Tokens that the model serves; zero if inference does not count."""

    @property
    def size(self) -> float:
        """Parameters over those of the optimum."""
        return self.model.parameters / self.optimum.parameters

    @property
    def training(self) -> float:
        """Training FLOPs over those of the optimum."""
        return self.model.flops / self.optimum.flops

    @property
    def flops(self) -> float:
        """FLOPs of training and inference."""
        return _whole(self.model, self.inference_tokens)

    @property
    def whole(self) -> float:
        """FLOPs of training and inference over those of the optimum."""
        return self.flops / _whole(self.optimum, self.inference_tokens)


def overtrained_model(law: LossLaw, optimum: Optimum, ratio: float, accounting: Accounting = PLAIN) -> OtherSize:
    """Return the model with the loss of an optimum that trains on `ratio` tokens for each parameter.

    `accounting` counts its FLOPs.
    """
    loss = _loss(law, optimum)
    power = brentq(lambda one: np.log(law.loss(10.0**one, ratio * 10.0**one) / loss), *_POWERS, xtol=1e-12)
    parameters = 10.0 ** float(power)
    return OtherSize(_model(parameters, ratio * parameters, loss, accounting), optimum, 0.0)


def serving_model(law: LossLaw, optimum: Optimum, inference_tokens: float, accounting: Accounting = PLAIN) -> OtherSize:
    """Return the model with the loss of an optimum that takes the fewest FLOPs, if it serves so many tokens.

    `accounting` counts those of training.
    """
    loss, largest = _loss(law, optimum), np.log10(optimum.parameters)
    least = brentq(lambda one: np.log(law.loss(10.0**one, _ENDLESS) / loss), _POWERS[0], largest)

    def flops(power: float) -> float:
        size = 10.0**power
        training = float(accounting.flops(size, _tokens(law, size, loss)))
        return float(np.log(training + size * _served(inference_tokens)))

    found = minimize_scalar(flops, bounds=(least, largest), method="bounded", options={"xatol": 1e-10})
    parameters = 10.0 ** float(found.x)
    model = _model(parameters, _tokens(law, parameters, loss), loss, accounting)
    return OtherSize(model, optimum, inference_tokens)


def _tokens(law: LossLaw, parameters: float, loss: float) -> float:
    """Return the tokens with which a size reaches a loss; as many as are searched if it hardly does."""
    low, high = (np.log(law.loss(parameters, 10.0**power) / loss) for power in _POWERS)
    if high >= 0 or low <= 0:
        return _ENDLESS
    return float(10.0 ** brentq(lambda one: np.log(law.loss(parameters, 10.0**one) / loss), *_POWERS, xtol=1e-12))


def _loss(law: LossLaw, optimum: Optimum) -> float:
    return float(law.loss(optimum.parameters, optimum.tokens))


def _model(parameters: float, tokens: float, loss: float, accounting: Accounting) -> Optimum:
    return Optimum(parameters, tokens, float(accounting.flops(parameters, tokens)), loss)


def _served(tokens: float) -> float:
    return INFERENCE_FLOPS * tokens


def _whole(model: Optimum, tokens: float) -> float:
    return float(model.flops + model.parameters * _served(tokens))


BYTES_PER_TOKEN = (4.0, 5.0)
"""Bytes of text of a token, least and most."""
COMMON_CRAWL_TOKENS = 1e14
"""Tokens of the text of 84 crawls."""


class Text(NamedTuple):
    """An amount of text."""

    tokens: float

    @property
    def nbytes(self) -> tuple[float, float]:
        """Bytes, least and most."""
        low, high = BYTES_PER_TOKEN
        return low * self.tokens, high * self.tokens

    @property
    def common_crawls(self) -> float:
        """Multiples of the text of Common Crawl."""
        return self.tokens / COMMON_CRAWL_TOKENS


@dataclass(frozen=True)
class Growth:
    """Growth of N and D with compute by one law."""

    law: str
    frontier: Frontier
    times: float
    """Compute over that of the start."""
    parameters: float
    """N over that of the start."""
    parameters_interval: Interval | None
    tokens: float
    """D over that of the start."""
    flops: float | None
    """Training FLOPs of the end; None without a start."""
    end: Optimum | None
    """Optimum of the end; None without a start, and if it is refused."""
    refused: bool

    @property
    def beyond(self) -> float | None:
        """Training FLOPs of the end over those of the largest fitted run; None without a start."""
        return None if self.flops is None else self.frontier.reach.beyond(self.flops)


@dataclass(frozen=True)
class Growths:
    """Growth of the best size and data with compute, by each law."""

    times: float
    flops: float | None
    """Training FLOPs of the start."""
    run: tuple[float, float] | None
    """N and D of the start, if it is a run."""
    answers: Mapping[str, Growth]


def growth(name: str, frontier: Frontier, times: float, flops: float | None, far: bool) -> Growth:
    """Return the growth of N and D, from the optimum of `flops`, or from that of the largest fitted run."""
    start = frontier.reach.most if flops is None else flops

    def factor(curve: OptimumCurve) -> float:
        return curve.at(times * start).parameters / curve.at(start).parameters

    size = factor(frontier)
    interval = None if frontier.spread is None else frontier.spread.interval(factor)
    end = None if flops is None else times * flops
    beyond = end is not None and is_refused(frontier, end, far)
    optimum = None if end is None or beyond else frontier.at(end)
    return Growth(name, frontier, times, size, interval, times / size, end, optimum, beyond)


Quantity = Literal["flops", "parameters", "tokens"]
_SOLVERS: Mapping[Quantity, Callable[[OptimumCurve, float], Optimum]] = {
    "flops": lambda curve, value: curve.at(value),
    "parameters": for_parameters,
    "tokens": for_tokens,
}


@dataclass(frozen=True)
class LawAnswer:
    """One law's answer."""

    law: str
    frontier: Frontier
    flops: float
    """Training FLOPs of the answer."""
    optimum: Optimum | None
    """None if the answer is refused."""
    intervals: Mapping[Quantity, Interval]
    """Intervals of the quantities that were not given; empty if the law has none."""
    overtrained: OtherSize | None = None
    served: OtherSize | None = None
    bill: FlopsCost | None = None

    @property
    def beyond(self) -> float:
        """Training FLOPs over those of the largest fitted run."""
        return self.frontier.reach.beyond(self.flops)

    @property
    def far(self) -> bool:
        """The answer is so far beyond the fitted runs that it is marked."""
        return self.beyond > MARKED


@dataclass(frozen=True)
class LawAnswers:
    """The best size and data by each law."""

    quantity: Quantity
    """The quantity that was given."""
    value: float
    answers: Mapping[str, LawAnswer]
    """Answers by the name of the law."""
    tokens_per_parameter: float | None = None
    inference_tokens: float | None = None


def answer(name: str, frontier: Frontier, quantity: Quantity, value: float, far: bool) -> LawAnswer:
    """Return the answer of one law to a given compute, size or amount of data."""
    found = _SOLVERS[quantity](frontier, value)
    if is_refused(frontier, found.flops, far):
        return LawAnswer(name, frontier, found.flops, None, {})
    return LawAnswer(name, frontier, found.flops, found, _intervals(frontier, quantity, value))


def _intervals(frontier: Frontier, quantity: Quantity, value: float) -> dict[Quantity, Interval]:
    """Return intervals of the two quantities that are not given; none if the law has no error."""
    if frontier.spread is None:
        return {}

    def figure(name: Quantity, curve: OptimumCurve) -> float:
        return float(getattr(_SOLVERS[quantity](curve, value), name))

    return {one: frontier.spread.interval(partial(figure, one)) for one in _SOLVERS if one != quantity}


def check_any(laws: Iterable[Frontier], flops: Iterable[float], far: bool) -> None:
    """Raise `UsageError` if every law refuses its answer at some compute."""
    beyond = [law.reach.beyond(one) for law, one in zip(laws, flops, strict=True)]
    if not far and min(beyond) > REFUSED:
        raise UsageError(
            f"that is {min(beyond):.2g} times the compute of the largest run that any of these laws was fitted to, and "
            f"beyond {REFUSED:,.0f} times none is asked; add --far to see numbers that nothing supports"
        )


def is_refused(frontier: Frontier, flops: float, far: bool) -> bool:
    """An answer at this compute is refused."""
    return not far and frontier.reach.beyond(flops) > REFUSED
