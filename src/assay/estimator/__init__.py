"""Bytes, FLOPs and seconds of a step before it runs: the fold of every optimization's `predict`, without torch."""

from assay.estimator.estimate import Estimate, estimate

__all__ = ["Estimate", "estimate"]
