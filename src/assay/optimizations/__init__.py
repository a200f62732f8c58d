"""Optimizations, one file each. `base` is their interface, `registry` finds them."""

from assay.optimizations.base import Conflict, Numerics, Optimization, Stage, Unavailable, Unplanned, Unpredicted
from assay.optimizations.card import Card, availability, card
from assay.optimizations.registry import catalogue, forget, is_own, optimizations_of, resolve, search
from assay.optimizations.stack import check, check_divided, expected_of, mesh_of, numerics_of, resolved, trained_model

__all__ = [
    "Card",
    "Conflict",
    "Numerics",
    "Optimization",
    "Stage",
    "Unavailable",
    "Unplanned",
    "Unpredicted",
    "availability",
    "card",
    "catalogue",
    "check",
    "check_divided",
    "expected_of",
    "forget",
    "is_own",
    "mesh_of",
    "numerics_of",
    "optimizations_of",
    "resolve",
    "resolved",
    "search",
    "trained_model",
]
