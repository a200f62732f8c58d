"""Types of a training step: its seams, its trace, and the evidence that a trace gives.

`Trace` and `Evidence` need no torch; `Program` does, and is imported from `assay.step.program`.
"""

from assay.step.evidence import Evidence
from assay.step.trace import Operation, Trace

__all__ = ["Evidence", "Operation", "Trace"]
