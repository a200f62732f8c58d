"""Studies of scaling: design one for a budget of time, run it, and ask whether its law predicted the largest run."""

from assay.api.isoflop.answers import answer, points
from assay.api.isoflop.running import plan, run, start

__all__ = ["answer", "plan", "points", "run", "start"]
