"""Metrics of a comparison, grouped in files. `base` is their interface, `registry` finds them."""

from assay.analysis.metrics.base import Metric
from assay.analysis.metrics.registry import metrics

__all__ = ["Metric", "metrics"]
