"""Scaling laws: run a study, fit a law to points, test it on larger runs, predict losses, and ask how large."""

from assay.api.batch import batch
from assay.api.laws import DRAWS, envelope, fit, isoflop, laws, predict
from assay.api.optimal import growth, optimal
from assay.api.scaling_study import answer, plan, points, run, start

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
