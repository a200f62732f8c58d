"""A power law with a floor, L(C) = a·C^b + c (OpenAI 2023, GPT-4 technical report, arXiv:2303.08774, section 3.1).

The floor c is the irreducible loss, and b is negative. The report predicted its model's loss from runs of at most a
10,000th of its compute, and prints no constants. Where losses are far above the floor, points do not identify it.

C is in units of 10^18 FLOPs in the fit and in print, so that a is a loss and not an astronomical number.
"""

from itertools import product

import numpy as np

from assay.scaling.laws.base import Constant, Form, columns, line, log_sum, slopes
from assay.scaling.points import Floats, Points

_UNIT = np.log(1e18)


class Saturating(Form):
    """a·C^b + c; its values are log a, b and log c."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        logs = points.log("compute") - _UNIT
        a, b, c = columns(values)
        total, (above, floor) = log_sum(a + b * logs, c)
        return total, slopes(above, above * logs, floor)

    def starts(self, points: Points) -> Floats:
        """Return lines through what lies above several floors."""
        logs, lowest = points.log("compute") - _UNIT, points.loss.min()
        found = []
        for part, times in product((0.05, 0.3, 0.6, 0.8, 0.95), (0.5, 1.0, 2.0)):
            level, power = line(logs, points.loss - part * lowest)
            power *= times
            found.append((level + (power - power / times) * logs.mean(), -power, np.log(part * lowest)))
        return np.array(found)


SATURATING = Saturating(
    name="saturating",
    formula="L(C) = a·C^b + c, C in 10^18 FLOPs",
    source="OpenAI 2023 (arXiv:2303.08774), section 3.1; no constants are printed",
    counts="C as counted, or else 6·N·D",
    constants=(Constant("a"), Constant("b", logarithmic=False), Constant("c")),
    needs=("compute",),
)
