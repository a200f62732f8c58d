"""Functions that programs and the command line call.

import assay

result = assay.train("shakespeare-char-cpu", "training.steps=200", optimizations="sdpa_attention+bf16_mixed")
print(result.val_loss, result.memory.tensors_peak_bytes, result.evidence)

Names are imported on first use, so that a verb loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.api.absent_gpu import absent as absent
    from assay.api.absent_gpu import absent_allocators as absent_allocators
    from assay.api.absent_gpu import absent_largest as absent_largest
    from assay.api.absent_gpu import absent_ranks as absent_ranks
    from assay.api.absent_gpu import gpu_peak as gpu_peak
    from assay.api.configuration import DEFAULT as DEFAULT
    from assay.api.configuration import Source as Source
    from assay.api.configuration import Stack as Stack
    from assay.api.configuration import configure as configure
    from assay.api.cost import training_cost as training_cost
    from assay.api.estimating import accuracy as accuracy
    from assay.api.estimating import calibrate as calibrate
    from assay.api.estimating import estimate as estimate
    from assay.api.estimating import estimate_every_rank as estimate_every_rank
    from assay.api.estimating import estimate_rows as estimate_rows
    from assay.api.estimating import inference as inference
    from assay.api.estimating import plan as plan
    from assay.api.estimating import token_budget as token_budget
    from assay.api.estimating import write_accuracy as write_accuracy
    from assay.api.gate import gate_check as gate_check
    from assay.api.gate import gate_time as gate_time
    from assay.api.gate import gate_update as gate_update
    from assay.api.measuring import anatomy as anatomy
    from assay.api.measuring import gradients as gradients
    from assay.api.measuring import measure as measure
    from assay.api.measuring import trace as trace
    from assay.api.recommending import capacity as capacity
    from assay.api.recommending import recommend as recommend
    from assay.api.study import compare as compare
    from assay.api.training import Listener as Listener
    from assay.api.training import train as train
    from assay.model.own_model import OwnModel as OwnModel

_MODULES = {
    "DEFAULT": "configuration",
    "Listener": "training",
    "Source": "configuration",
    "Stack": "configuration",
    "OwnModel": ".model.own_model",
    "absent": "absent_gpu",
    "absent_allocators": "absent_gpu",
    "absent_largest": "absent_gpu",
    "absent_ranks": "absent_gpu",
    "accuracy": "estimating",
    "anatomy": "measuring",
    "calibrate": "estimating",
    "capacity": "recommending",
    "compare": "study",
    "configure": "configuration",
    "estimate": "estimating",
    "estimate_every_rank": "estimating",
    "estimate_rows": "estimating",
    "gate_check": "gate",
    "gate_time": "gate",
    "gate_update": "gate",
    "gpu_peak": "absent_gpu",
    "gradients": "measuring",
    "inference": "estimating",
    "measure": "measuring",
    "plan": "estimating",
    "recommend": "recommending",
    "token_budget": "estimating",
    "trace": "measuring",
    "train": "training",
    "training_cost": "cost",
    "write_accuracy": "estimating",
}

__all__ = [*_MODULES, "runs", "study"]


def __getattr__(name: str) -> Any:
    if name in ("runs", "study"):
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
