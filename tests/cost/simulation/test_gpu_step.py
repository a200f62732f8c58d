"""A step on a GPU: workspaces by thread and in order, the batch on the device, a captured graph, copies beside."""

from dataclasses import replace

import pytest

from assay.cost.gpu_kernels import cublas_workspace, cublaslt_workspace
from assay.cost.kernels import CPU
from assay.cost.simulation.allocator import Ledger
from assay.cost.simulation.reserved import Interval, kept_workspaces
from assay.cost.simulation.timeline import replay
from assay.cost.step_cost import Cost
from assay.estimator import estimate
from assay.hardware.devices import absent_machine
from support.runs import SHAPE, run_with, specs_of

H200 = absent_machine("h200")
HOPPER, LT = cublas_workspace((9, 0)), cublaslt_workspace()


def ledger(*stack: str, bias: bool = True, device: str = "h200") -> Cost:
    run = run_with(*specs_of(stack), model=SHAPE.model_copy(update={"bias": bias}))
    return estimate(run.model_copy(update={"device": "cuda"}), absent_machine(device)).cost


@pytest.mark.parametrize("stack", [(), ("activation_checkpointing",), ("bf16_mixed", "chunked_cross_entropy")])
@pytest.mark.parametrize("bias", [True, False])
def test_workspaces_that_libraries_keep_are_those_that_a_step_takes(stack: tuple[str, ...], bias: bool) -> None:
    cost = ledger(*stack, bias=bias)
    played = Ledger(live=cost.held_bytes)
    replay(cost, played)
    assert played.workspaces == kept_workspaces(cost, (9, 0))
    recomputed = bias and "activation_checkpointing" in stack
    assert played.workspaces == 2 * HOPPER + LT * (bias + recomputed)


def test_a_peak_in_forward_has_one_workspace() -> None:
    """Autograd's thread takes its own at its first product, and the peak of tensors leaves all of them out."""
    cost = ledger(bias=False)
    found = replay(cost)
    first = {moment.phase: moment.nbytes for moment in found.instants if moment.phase == "forward"}
    assert found.requested.phase == "backward"
    assert found.peak.nbytes + 2 * HOPPER == found.requested.nbytes > max(first.values()) + HOPPER


def test_a_smaller_gpu_has_smaller_workspaces() -> None:
    least, most = (replay(ledger(device=one)) for one in ("a100", "h100"))
    assert most.requested.nbytes - least.requested.nbytes == 2 * (HOPPER - cublas_workspace((8, 0)))
    assert most.peak == least.peak


def test_a_cpu_has_no_workspaces() -> None:
    found = replay(replace(ledger(), kernels=CPU))
    assert found.requested == found.peak


def test_a_captured_graph_s_own_memory_is_not_requested_again() -> None:
    plain, replayed = replay(ledger()), replay(ledger("cuda_graphs"))
    assert replayed.requested.phase == "update"
    assert replayed.requested.nbytes < plain.requested.nbytes - HOPPER
    assert replayed.peak.nbytes > plain.peak.nbytes


def test_an_update_beside_a_graph_takes_a_workspace_if_it_multiplies() -> None:
    lion, muon = (replay(ledger("cuda_graphs", one)).requested.nbytes for one in ("lion", "muon"))
    assert HOPPER < muon - lion < 2 * HOPPER


def test_copies_to_the_host_end_at_once_or_with_the_step() -> None:
    run = run_with(*specs_of(("activation_offload",))).model_copy(update={"device": "cuda"})
    plain = estimate(run_with().model_copy(update={"device": "cuda"}), H200)
    found = estimate(run, H200)
    assert found.requested_bytes.low == found.timeline.requested.nbytes < plain.timeline.requested.nbytes
    assert found.requested_bytes.high > plain.timeline.requested.nbytes
    assert plain.requested_bytes.low == plain.requested_bytes.high


def test_the_peak_of_compiled_code_is_between_two_bounds() -> None:
    found = estimate(run_with(*specs_of(("compile",))).model_copy(update={"device": "cuda"}), H200)
    peak = found.timeline.requested.nbytes
    assert found.requested_bytes == Interval(round(0.99 * peak), round(1.06 * peak))
