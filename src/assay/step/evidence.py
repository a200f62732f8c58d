"""A proof, or its absence: what was observed in the trace, and whether it is what the optimization promises."""

from assay.config.base import Frozen

BEGINNING_ONLY = "proven at its beginning only: no step was traced at the end"
"""Printed where a run stopped before the second trace."""


class Evidence(Frozen):
    """What `verify` found."""

    optimization: str
    observed: str
    """A fact with its counts, for instance "49 of 49 matmuls in bfloat16"."""
    verdict: bool
