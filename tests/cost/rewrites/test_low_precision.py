"""Casts of a step under autocast: a CPU's loss is computed in float32, a CUDA device's in the low dtype first."""

import pytest

from assay.cost import baseline
from assay.cost.kernels import CPU, CUDA, Kernels
from assay.cost.rewrites.low_precision import autocast
from support.runs import run_with

LOSS = ("aten._log_softmax", "aten.nll_loss_forward")


@pytest.mark.parametrize(("kernels", "dtypes"), [(CPU, {"float32"}), (CUDA, {"bfloat16", "float32"})])
def test_log_probabilities_are_saved_as_the_device_computes_them(kernels: Kernels, dtypes: set[str]) -> None:
    """Traces on an absent H200 show that softmax saves 16 bits there, and the loss its copy of 32."""
    cost = autocast(baseline(run_with(), kernels), "bfloat16")
    saved = [cost.values[name] for one in cost.tape if one.name in LOSS for name in one.saves]
    assert {one.dtype for one in saved if len(one.shape) == 2 and one.dtype != "int64"} == dtypes
