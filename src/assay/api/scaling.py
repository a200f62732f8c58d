"""Scaling laws: fit one to points, test it on larger runs, predict losses, and ask laws how large and how long."""

from assay.api.asking.batch import batch
from assay.api.asking.optimal import growth, optimal
from assay.api.laws.fitting import DRAWS, fit, laws, predict
from assay.api.laws.frontiers import envelope, isoflop

__all__ = ["DRAWS", "batch", "envelope", "fit", "growth", "isoflop", "laws", "optimal", "predict"]
