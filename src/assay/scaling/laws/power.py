"""A power law of one quantity, L = (x_c/x)^α: the form that several laws of Kaplan et al. 2020 have."""

from dataclasses import dataclass

import numpy as np

from assay.scaling.laws.base import Form, columns, line, slopes
from assay.scaling.points import Floats, Points


@dataclass(frozen=True, eq=False, kw_only=True)
class PowerLaw(Form):
    """(x_c/x)^α of one column of the points; its values are log x_c and α."""

    of_column: str

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        logs = points.log(self.of_column)
        scale, power = columns(values)
        return power * (scale - logs), slopes(power * np.ones_like(logs), scale - logs)

    def starts(self, points: Points) -> Floats:
        """Return the line through the logarithms, and steeper and flatter ones through their mean."""
        logs, losses = points.log(self.of_column), np.log(points.loss)
        _, power = line(logs, points.loss)
        powers = max(abs(power), 1e-3) * np.array([1.0, 0.5, 2.0])
        return np.stack([losses.mean() / powers + logs.mean(), powers], axis=1)
