"""Optimizations, one file each. `base` is their interface, `registry` finds them."""

from assay.optimizations.base import Conflict, Numerics, Optimization, Stage, Unavailable, Unplanned, Unpredicted
from assay.optimizations.card import Card, availability, card
from assay.optimizations.registry import (
    catalogue,
    check,
    divided,
    expected_of,
    forget,
    mesh_of,
    normalize,
    numerics_of,
    optimizations_of,
    resolve,
    search,
    trained_model,
)

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
    "divided",
    "expected_of",
    "forget",
    "mesh_of",
    "normalize",
    "numerics_of",
    "optimizations_of",
    "resolve",
    "search",
    "trained_model",
]
