"""Scaling laws: run a study, fit a law to points, test it on larger runs, predict losses, and ask how large."""

from assay.api.asking.batch import batch
from assay.api.asking.optimal import growth, optimal
from assay.api.isoflop import answer, plan, points, run, start
from assay.api.laws.fitting import DRAWS, fit, laws, predict
from assay.api.laws.frontiers import envelope, isoflop

__all__ = [
    "DRAWS",
    "answer",
    "batch",
    "envelope",
    "fit",
    "growth",
    "isoflop",
    "laws",
    "optimal",
    "plan",
    "points",
    "predict",
    "run",
    "start",
]
