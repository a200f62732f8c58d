"""What a person is told to do next agrees with how the run ended."""

from typing import Any

import pytest

from assay.config import Home
from assay.errors import START_AGAIN
from assay.launch.run_lock import claim_folder
from assay.records.memory import Memory
from assay.records.prediction import Predicted
from assay.records.status import Status
from assay.records.timing import Block
from assay.report.closing.run import closing
from assay.store.result import compose
from support.children import make_ready
from support.comparisons import record


@pytest.mark.parametrize(
    ("status", "reason", "saved", "says"),
    [
        (Status.FAILED, f"every checkpoint is damaged; {START_AGAIN}", True, "starts a new run"),
        (Status.FAILED, f"rank 1 failed: it is damaged; {START_AGAIN} (its log is x)", True, "starts a new run"),
        (Status.FAILED, "division by zero", True, "continues from the newest checkpoint"),
        (Status.FAILED, "h.0.bias needs no gradient", False, "starts a new run, once the fault is corrected"),
        (Status.UNAVAILABLE, "bf16_mixed needs blocks", False, "starts a new run, once the fault is corrected"),
        (Status.KILLED, "killed by signal 9", False, "starts again, because nothing was saved"),
    ],
)
def test_the_advice_agrees_with_the_reason(home: Home, status: Status, reason: str, saved: bool, says: str) -> None:
    with claim_folder(make_ready(home), home) as claim:
        told = closing(compose(claim.folder, status, reason), saved=saved)
    (hint,) = [text for label, text in told if label == "next"]
    assert says in hint
    assert ("--resume" in hint) is ("starts a new run" not in says)


def lines(**changes: Any) -> dict[str, str]:
    """Last lines of a run of a comparison that nobody measured; of several with a label, the last."""
    return dict(closing(record().cells[0].result.model_copy(update={"preset": "demo", **changes}), saved=True))


def test_the_last_lines_have_the_result_and_what_it_is_compared_with() -> None:
    found = lines()
    assert found["result"].startswith("validation loss 2.4100 after 60 steps; 52.0 ms a step, ")
    assert found["result"].endswith("peak of tensors 65.0 MiB")
    assert found["against"] == (
        "a uniform guess has a loss of 5.5452; predicted 50.0 ms a step (measured +4.0 %), "
        "a peak of 65.1 MiB (measured −0.2 %)"
    )
    assert (
        "; predicted a traced peak of 65.1 MiB (measured −0.2 %)"
        in (lines(predicted=Predicted(tensors_peak_bytes=round(65.1 * 2**20), traced=True))["against"])
    )


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("cpu", "assay recommend demo --memory 16GiB --calibrate 90    times what to turn on"),
        ("cuda", "assay recommend demo --device NAME    ranks what to turn on"),
    ],
)
def test_a_recommendation_is_asked_for_the_machine_of_the_run(device: str, says: str) -> None:
    environment = record().cells[0].result.environment
    assert environment is not None
    there = environment.model_copy(update={"device": device, "memory_bytes": 2**34 + 5})
    assert lines(environment=there)["next"] == says


def test_a_known_peak_gives_the_utilization() -> None:
    predicted = Predicted(model_flops=10**9, peak_flops=1e11)
    assert "tokens/s, MFU 19.2%;" in lines(predicted=predicted)["result"]
    assert "predicted" not in lines(predicted=predicted)["against"]


@pytest.mark.parametrize(("executed", "told"), [(10**9, "MFU 19.2%;"), (1_333_000_000, "MFU 19.2%, HFU 25.6%;")])
def test_recomputation_is_in_the_share_of_executed_flops_only(executed: int, told: str) -> None:
    predicted = Predicted(model_flops=10**9, step_flops=executed, peak_flops=1e11)
    assert f"tokens/s, {told}" in lines(predicted=predicted)["result"]


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (0.5, "waits for the device (the host queues it in 50% of its time)"),
        (0.98, "waits for the host (the host queues it in 98% of its time)"),
    ],
)
def test_a_step_of_a_gpu_waits_for_host_or_device(host: float, told: str) -> None:
    block = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, host_seconds=host, device_seconds=0.9)
    assert told in lines(blocks=(block,))["result"]
    on_cpu = block.model_copy(update={"host_seconds": None})
    assert "waits" not in lines(blocks=(on_cpu,))["result"]


def test_an_ending_that_is_no_success_opens_the_result() -> None:
    assert lines(status=Status.TIMED_OUT)["result"].startswith("timed out; ")
    nothing = {"val_loss": None, "train_loss": None, "step_seconds": None, "memory": Memory(), "predicted": None}
    found = lines(status=Status.FAILED, **nothing)
    assert found["result"] == "failed"
    assert "against" not in found
