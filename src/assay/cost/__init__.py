"""Bytes and FLOPs of one device in one optimizer step, as plain arithmetic; no torch.

Names are imported on first use, so that a process that only counts parameters does not load the ledger.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from assay.cost.gpt_tape import active_parameter_count, parameter_count, parameters  # the last hides its module

if TYPE_CHECKING:
    from assay.cost.layers import Tape as Tape
    from assay.cost.layers import Writer as Writer
    from assay.cost.operation import DTYPE_BYTES as DTYPE_BYTES
    from assay.cost.operation import Gradient as Gradient
    from assay.cost.operation import Operation as Operation
    from assay.cost.operation import Tensor as Tensor
    from assay.cost.simulation.allocator import Moment as Moment
    from assay.cost.simulation.timeline import Timeline as Timeline
    from assay.cost.simulation.timeline import replay as replay
    from assay.cost.step_cost import Cost as Cost
    from assay.cost.step_cost import baseline as baseline
    from assay.cost.update_rules import Instant as Instant
    from assay.cost.update_rules import UpdateRule as UpdateRule
    from assay.cost.work import executed_flops as executed_flops
    from assay.cost.work import model_flops as model_flops
    from assay.cost.work import multiplying as multiplying
    from assay.cost.work import recomputed_positions as recomputed_positions

_MODULES = {
    "DTYPE_BYTES": "operation",
    "Cost": "step_cost",
    "Gradient": "operation",
    "Instant": "update_rules",
    "Moment": "simulation.allocator",
    "Operation": "operation",
    "Tape": "layers",
    "Tensor": "operation",
    "Timeline": "simulation.timeline",
    "UpdateRule": "update_rules",
    "Writer": "layers",
    "baseline": "step_cost",
    "executed_flops": "work",
    "model_flops": "work",
    "multiplying": "work",
    "recomputed_positions": "work",
    "replay": "simulation.timeline",
}

__all__ = [
    "DTYPE_BYTES",
    "Cost",
    "Gradient",
    "Instant",
    "Moment",
    "Operation",
    "Tape",
    "Tensor",
    "Timeline",
    "UpdateRule",
    "Writer",
    "active_parameter_count",
    "baseline",
    "executed_flops",
    "model_flops",
    "multiplying",
    "parameter_count",
    "parameters",
    "recomputed_positions",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
