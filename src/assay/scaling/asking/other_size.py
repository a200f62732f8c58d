"""Models off the optimum that reach its loss: trained on more tokens, or cheapest together with their inference.

Training takes 6·N·D FLOPs, and inference 2·N for each of T tokens. A smaller model with more data reaches the same
loss. It takes more training and less inference (Sardana et al. 2023, arXiv:2401.00448):

    minimize 6·N·D + 2·N·T  where  L(N, D) = loss

Both are found by bisection and Brent's method on logarithms, so any law of the loss can be asked. FLOPs are those of
ideal hardware. Generation is limited by bandwidth rather than products, so its true price is often higher.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from assay.scaling.accounting import PLAIN, Accounting
from assay.scaling.asking.frontier import LossLaw, Optimum

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


def overtrained(law: LossLaw, optimum: Optimum, ratio: float, accounting: Accounting = PLAIN) -> OtherSize:
    """Return the model with the loss of an optimum that trains on `ratio` tokens for each parameter.

    `accounting` counts its FLOPs.
    """
    loss = _loss(law, optimum)
    power = brentq(lambda one: np.log(law.loss(10.0**one, ratio * 10.0**one) / loss), *_POWERS, xtol=1e-12)
    parameters = 10.0 ** float(power)
    return OtherSize(_model(parameters, ratio * parameters, loss, accounting), optimum, 0.0)


def served(law: LossLaw, optimum: Optimum, inference_tokens: float, accounting: Accounting = PLAIN) -> OtherSize:
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
