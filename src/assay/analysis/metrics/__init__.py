"""Metrics of a comparison, grouped in files. `base` is their interface, and finds them."""

from assay.analysis.metrics.base import Metric, metrics

__all__ = ["Metric", "metrics"]
