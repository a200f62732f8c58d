"""Shapes only: the seams of a training step, the trace of one, and what a trace proves.

`Trace` and `Evidence` need no torch; `Program` does, and is imported from `assay.step.program`.
"""

from assay.step.evidence import Evidence
from assay.step.trace import Operation, Trace

__all__ = ["Evidence", "Operation", "Trace"]
