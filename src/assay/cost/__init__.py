"""Bytes and FLOPs of one device in one optimizer step, as plain arithmetic; no torch."""

from assay.cost.ledger import Moment
from assay.cost.parameters import active_parameter_count, parameter_count, parameters
from assay.cost.step import Cost, baseline
from assay.cost.tape import Gradient, Operation, Tape, Writer
from assay.cost.tensors import DTYPE_BYTES, Tensor
from assay.cost.timeline import Timeline, replay
from assay.cost.updates import Instant, UpdateRule
from assay.cost.work import executed_flops, model_flops, repeated

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
    "parameter_count",
    "parameters",
    "repeated",
    "replay",
]
