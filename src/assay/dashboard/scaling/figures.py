"""Figures of *Scaling* as plain numbers: the best size by compute under each law, and the loss by size at a compute."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from assay.dashboard.scaling.own_laws import Budget, OwnLaw
from assay.dashboard.scaling.question import LEAST_POWER, MOST_POWER
from assay.scaling.frontier import Frontier, LossLaw, minimum
from assay.scaling.optimal import LawAnswers
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Accounting
from assay.scaling.published import FRONTIERS, Line
from assay.units import format_count, format_power

_AROUND = 30.0
"""Largest factor from the optimum to the sizes of a curve of losses."""


def sizes_figure(found: LawAnswers, chosen: str) -> dict[str, Any]:
    """Return the best N by compute: a line for each law, its end of fitted runs, and the answers of the budget.

    A law that is drawn through the rows of a published table has these as well.
    """
    lines = []
    for name, one in found.answers.items():
        best = one.optimum
        line = {"name": name, "chosen": name == chosen, "most": one.frontier.reach.most, **_line(name, one.frontier)}
        line["rows"] = _rows(one.frontier)
        lines.append({**line, "best": None if best is None else [best.flops, best.parameters]})
    return {"lines": lines}


def losses_figure(law: LossLaw, accounting: Accounting, flops: float, own: OwnLaw | None) -> dict[str, Any]:
    """Return the loss by N at the budget, and at each budget of the home's own points with its runs.

    FLOPs are as the points of the law count them.
    """
    asked = _losses(law, accounting, flops)
    curves = [{"name": f"{format_power(flops)} FLOPs", "asked": True, **asked, "runs": []}]
    best = minimum(law, accounting).at(flops)
    curves[0]["best"] = [best.parameters, best.loss]
    if own is not None:
        curves += [_budget(law, accounting, one) for one in own.budgets]
    return {"curves": curves}


def _budget(law: LossLaw, accounting: Accounting, one: Budget) -> dict[str, Any]:
    runs = [list(run) for run in one.runs]
    return {"name": one.name, "asked": False, **_losses(law, accounting, one.flops), "runs": runs}


def _losses(law: LossLaw, accounting: Accounting, flops: float) -> dict[str, Any]:
    best = minimum(law, accounting).at(flops).parameters
    sizes = np.geomspace(best / _AROUND, best * _AROUND, 61)
    losses = law.loss(sizes, accounting.tokens(sizes, flops))
    return {"x": sizes.tolist(), "y": losses.tolist(), "texts": list(map(format_count, sizes))}


def _rows(law: Frontier) -> list[list[float]]:
    """Return the published optima through which a law is drawn, as training FLOPs and N; none for other laws."""
    rows = law.curve.rows if isinstance(law.curve, Line) else ()
    return [[FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens, parameters] for parameters, tokens in rows]


def _line(name: str, law: Frontier) -> Mapping[str, list[float]]:
    return _published(name) if name in FRONTIERS else _sizes(law)


@cache
def _published(name: str) -> Mapping[str, list[float]]:
    return _sizes(FRONTIERS[name])


def _sizes(law: Frontier) -> Mapping[str, list[float]]:
    compute = np.geomspace(10.0**LEAST_POWER, 10.0**MOST_POWER, 73)
    return {"x": compute.tolist(), "y": [law.at(float(one)).parameters for one in compute]}
