"""Optimizations, one file each. `optimization` is their interface, `discovery` finds them."""

from assay.optimizations.card import Card, availability, card
from assay.optimizations.discovery import catalogue, forget, is_own, optimizations_of, resolve, search
from assay.optimizations.optimization import (
    Conflict,
    Numerics,
    Optimization,
    Stage,
    Unavailable,
    Unplanned,
    Unpredicted,
)
from assay.optimizations.stack import (
    check,
    check_divided,
    expected_of,
    mesh_of,
    model_weights,
    numerics_of,
    resolve_run,
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
    "check_divided",
    "expected_of",
    "forget",
    "is_own",
    "mesh_of",
    "model_weights",
    "numerics_of",
    "optimizations_of",
    "resolve",
    "resolve_run",
    "search",
    "trained_model",
]
