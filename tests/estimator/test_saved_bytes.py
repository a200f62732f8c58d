"""Bytes kept for backward are predicted to the byte: every optimization alone, and every pair."""

from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.config import Run
from assay.config.run import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from support.runs import FOUR, drawn_runs
from support.steps import build_step, saved_bytes

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
STACKS = [(), *((one,) for one in FOUR), *combinations(FOUR, 2), FOUR]


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(spec.name for spec in stack) or "baseline")
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_saved_bytes_equal_the_measured_ones(stack: tuple[Spec, ...], data: st.DataObject) -> None:
    fused = any(spec.name == "sdpa_attention" for spec in stack)
    run: Run = data.draw(drawn_runs(stack, dropout=not fused))
    assert estimate(run, MACHINE).timeline.saved_bytes == saved_bytes(build_step(run))
