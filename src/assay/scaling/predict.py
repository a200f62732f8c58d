"""Questions to a law: the points that are asked for, and a law of published constants, which has no intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay.errors import UsageError
from assay.scaling.fitted import Prediction, check_reach
from assay.scaling.frontier import minimum
from assay.scaling.law_intervals import extents
from assay.scaling.laws import Law, form_named
from assay.scaling.points import LIMITS, PLAIN, Accounting, Floats, Points, planned_points

_SPOKEN = {"counted_flops": "flops", "compute": "flops"}
"""Names of quantities as users give them, where they differ from the column's."""


_OF_ALL = {"compute", "counted_flops"}
"""Columns that follow from FLOPs, or from N and D."""


@dataclass(frozen=True)
class PublishedLaw:
    """A law with the constants of a source. It has no points, so no intervals; its reach is the largest run's."""

    law: Law
    source: str

    def predict(self, points: Points, far: bool = False) -> Prediction:
        """Return the loss at each point; the ends of intervals are not known (NaN).

        Raises `UsageError` beyond 10,000 times the largest run behind the constants unless `far`.
        """
        losses, form = self.law.losses(points), self.law.form
        unknown = np.full_like(losses, np.nan)
        beyond = unknown if form.reach is None else np.maximum(1.0, extents(points, form) / form.reach)
        check_reach(beyond, far)
        return Prediction(
            self.law, points, losses, unknown, unknown, beyond, (form.extent,) * len(losses), source=self.source
        )


def published_law(name: str, source: str | None = None) -> PublishedLaw:
    """Return a law with published constants; the first source if none is named.

    Raises `UsageError` if there are none.
    """
    form = form_named(name)
    chosen = source if source is not None else next(iter(form.published), "")
    return PublishedLaw(form.known(chosen), chosen)


def _check_asked(law: Law, name: str, values: Floats) -> None:
    """Raise `UsageError` for a quantity that is impossible, or that the law does not use."""
    least, most = LIMITS[name]
    spoken = _SPOKEN.get(name, name)
    if not np.all((least <= values) & (values <= most)):
        raise UsageError(f"{spoken}={values.ravel()[0]:g} is not possible; give a number from {least:g} to {most:g}")
    used = {"parameters", "tokens", "counted_flops"} if _OF_ALL & set(law.form.needs) else set(law.form.needs)
    if {"parameters", "tokens"} <= set(law.form.needs):
        used = {"parameters", "tokens", "counted_flops", *law.form.needs}
    if name not in used:
        raise UsageError(f"the law {law.form.name} does not use {spoken}; leave it out, or choose another law")


def asked_points(law: Law, columns: Mapping[str, "Floats | float | None"], accounting: Accounting = PLAIN) -> Points:
    """Return the points of a question. Raises `UsageError` if a quantity is missing, or is not positive.

    N or D follows from the other one and from FLOPs, by C = 6·N·D or as `accounting` counts them. FLOPs alone ask for
    the law's optimum.
    """
    given = {name: np.asarray(one, dtype=float) for name, one in columns.items() if one is not None}
    needs = law.form.needs
    for name, values in given.items():
        _check_asked(law, name, values)
    if "unique_tokens" in given and np.any(given["unique_tokens"] > given.get("tokens", np.inf)):
        raise UsageError("unique_tokens are some of the tokens, and cannot be more of them")
    if {"parameters", "tokens"} <= set(needs) and "counted_flops" in given:
        if "parameters" in given and "tokens" in given:
            raise UsageError("give two of parameters, tokens and flops; the third follows from C = 6·N·D")
        flops = np.atleast_1d(given.pop("counted_flops"))
        if "parameters" not in given and "tokens" not in given:
            best = [minimum(law, accounting).at(float(one)) for one in flops]
            given |= {"parameters": np.array([one.parameters for one in best])}
            given |= {"tokens": np.array([one.tokens for one in best])}
        elif "parameters" in given:
            given["tokens"] = accounting.tokens(given["parameters"], flops)
        else:
            given["parameters"] = accounting.parameters(given["tokens"], flops)
    points = planned_points(**given) if given else planned_points(parameters=np.nan)
    missing = [_SPOKEN.get(name, name) for name in needs if points.column(name) is None]
    if missing:
        raise UsageError(f"the law {law.form.name} needs {' and '.join(missing)}")
    return points
