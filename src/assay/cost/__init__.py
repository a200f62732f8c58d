"""Bytes and FLOPs of one device in one optimizer step, as plain arithmetic; no torch."""

from assay.cost.operation import Gradient, Operation
from assay.cost.optimizers.updates import Instant, UpdateRule
from assay.cost.parameters import active_parameter_count, parameter_count, parameters
from assay.cost.simulation.allocator import Moment
from assay.cost.simulation.timeline import Timeline, replay
from assay.cost.step import Cost, baseline
from assay.cost.tape import Tape, Writer
from assay.cost.tensors import DTYPE_BYTES, Tensor
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
