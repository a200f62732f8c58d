"""Assay: a laboratory in which every optimization of GPT training predicts, acts and proves itself.

The functions are imported on first use, so that ``import assay`` is quick and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.api import OwnModel as OwnModel
    from assay.api import accuracy as accuracy
    from assay.api import anatomy as anatomy
    from assay.api import calibrate as calibrate
    from assay.api import capacity as capacity
    from assay.api import compare as compare
    from assay.api import configure as configure
    from assay.api import estimate as estimate
    from assay.api import gradients as gradients
    from assay.api import inference as inference
    from assay.api import measure as measure
    from assay.api import plan as plan
    from assay.api import recommend as recommend
    from assay.api import runs as runs
    from assay.api import study as study
    from assay.api import token_budget as token_budget
    from assay.api import trace as trace
    from assay.api import train as train
    from assay.api import training_cost as training_cost

__all__ = [
    "OwnModel",
    "accuracy",
    "anatomy",
    "calibrate",
    "capacity",
    "compare",
    "configure",
    "estimate",
    "gradients",
    "inference",
    "measure",
    "plan",
    "recommend",
    "runs",
    "study",
    "token_budget",
    "trace",
    "train",
    "training_cost",
]

_EARLIER = {"project": "plan"}
"""Names of functions by an earlier one, which still works."""


def __getattr__(name: str) -> Any:
    name = _EARLIER.get(name, name)
    if name in __all__:
        return getattr(import_module("assay.api"), name)
    if name == "__version__":
        return import_module("assay.hardware.detect").assay_version()
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
