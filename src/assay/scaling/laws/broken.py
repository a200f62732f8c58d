"""A smoothly broken power law with one break (Caballero et al. 2022, arXiv:2210.14891, equation 1 with n = 1).

L(x) = a + b·x^(−c₀)·(1 + (x/d)^(1/f))^(−c₁·f). Far below the break d the exponent is c₀, and far above c₀ + c₁. The
number f is the width of the break in log x. It is at least 0.05 here, because all sharper breaks look alike.

Six constants need many points, on both sides of the break. Points without a visible break do not identify c₁, d and f.
With n breaks the form has 3·n + 3 constants; one is enough here.

x is compute in 10^18 FLOPs, or data in 10^9 tokens, so that b is a loss.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import expit

from assay.scaling.laws.base import Constant, Form, columns, line, log_sum, slopes
from assay.scaling.points import Floats, Points

_LEAST_WIDTH = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Broken(Form):
    """The broken law of one column; its values are log a, log b, c₀, c₁, log d and log(f − 0.05)."""

    of_column: str
    unit: float

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        logs = points.log(self.of_column) - np.log(self.unit)
        a, b, before, change, place, log_width = columns(values)
        above_least = np.exp(log_width)
        width = _LEAST_WIDTH + above_least
        turned = (logs - place) / width
        soft, part = np.logaddexp(0, turned), expit(turned)
        total, (floor, above) = log_sum(a, b - before * logs - change * width * soft)
        return total, slopes(
            floor,
            above,
            -above * logs,
            -above * width * soft,
            above * change * part,
            -above * change * above_least * (soft - part * turned),
        )

    def starts(self, points: Points) -> Floats:
        """Return lines above several floors that turn at several places, steeper or flatter."""
        logs, lowest = points.log(self.of_column) - np.log(self.unit), points.loss.min()
        found = []
        for part, share, turn, width in product((0.05, 0.5, 0.9), (0.25, 0.5, 0.75), (-0.5, 0.5, 2.0), (0.2, 1.0)):
            level, power = line(logs, points.loss - part * lowest)
            place = float(np.quantile(logs, share))
            before = power / (1 + turn * (1 - share))
            at_place = level - power * place
            found.append(
                (
                    np.log(part * lowest),
                    at_place + before * place,
                    before,
                    turn * before,
                    place,
                    np.log(width - _LEAST_WIDTH),
                )
            )
        return np.array(found)


_SOURCE = "Caballero et al. 2022 (arXiv:2210.14891), one break"
_CONSTANTS = (
    Constant("a"),
    Constant("b"),
    Constant("c₀", logarithmic=False),
    Constant("c₁", logarithmic=False),
    Constant("d"),
    Constant("f", least=_LEAST_WIDTH),
)

BROKEN_COMPUTE = Broken(
    name="broken-compute",
    formula="L(C) = a + b·C^(−c₀)·(1 + (C/d)^(1/f))^(−c₁·f), C in 10^18 FLOPs",
    source=_SOURCE,
    counts="C as counted, or else 6·N·D",
    constants=_CONSTANTS,
    needs=("compute",),
    of_column="compute",
    unit=1e18,
)
BROKEN_DATA = Broken(
    name="broken-data",
    formula="L(D) = a + b·D^(−c₀)·(1 + (D/d)^(1/f))^(−c₁·f), D in 10^9 tokens",
    source=_SOURCE,
    counts="D in tokens; the size does not limit",
    constants=_CONSTANTS,
    needs=("tokens",),
    extent="tokens",
    of_column="tokens",
    unit=1e9,
)
