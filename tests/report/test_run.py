"""One run as text, and its last lines."""

from typing import Any

import pytest

from assay.config import Home
from assay.errors import START_AGAIN
from assay.launch.spawn import claim_folder
from assay.records.gradients import GradientProbe, NoiseScale
from assay.records.prediction import Memory, Predicted
from assay.records.run import SampledText
from assay.records.status import Status
from assay.records.timing import Block, Quartiles
from assay.report.kit.blocks import UNKNOWN, Table
from assay.report.run import RunView, lines
from assay.report.run_answer import closing
from assay.store.result import compose
from support.children import make_ready
from support.comparisons import record
from support.records import result_of


def test_a_figure_that_was_not_measured_has_its_reason(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    assert "not measured" not in str(list(RunView(found, home).blocks()))
    poor = found.model_copy(update={"missing": {"memory.process_peak_bytes": "only Linux has it"}})
    (table,) = (
        one for one in RunView(poor, home).blocks() if isinstance(one, Table) and one.columns[0] == "not measured"
    )
    assert table.rows == (("memory.process_peak_bytes", "only Linux has it"),)


def test_workspaces_and_blocks_that_wait_have_rows_of_their_own(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    on_gpu = Memory(tensors_peak_bytes=2**20, library_scratch_bytes=2**26, waiting_peak_bytes=2**21)
    (table,) = (
        one
        for one in RunView(found.model_copy(update={"memory": on_gpu}), home).blocks()
        if isinstance(one, Table) and one.columns[0] == "memory"
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["library scratch, in addition to the tensors"] == ("64.0 MiB", UNKNOWN)
    assert rows["freed, waiting for another stream"] == ("2.00 MiB", UNKNOWN)
    assert "freed, waiting for another stream" not in str(list(RunView(found, home).blocks()))


def test_a_text_of_the_model_is_one_line(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    sample = SampledText(prompt="\n", text="to be\n\x1b[31mor not", temperature=0.8, seed=0)
    told = dict(lines(found.model_copy(update={"sample": sample})))
    assert told["text"] == r"'to be\n\x1b[31mor not'"
    assert "text" not in dict(lines(found))


def test_the_agreement_of_gradients_is_one_line(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    probe = GradientProbe(
        run=found.run,
        steps=10,
        micro_batches=6,
        sequences=4,
        tokens_per_sequence=8,
        loss=3.0,
        gradient_norm=1.0,
        micro_batch_norm=2.0,
        mean_cosine=0.25,
        noise_scale=NoiseScale(sequences=12.0, standard_error=1.5, squared_gradient=1.0, noise=12.0),
        modules=(),
    )
    told = dict(lines(found.model_copy(update={"gradient_probe": probe})))["gradients"]
    assert told == (
        "cosine 0.250 between two of 6 micro-batches of 4 sequences, plain model; noise scale 12 ± 1.5 sequences"
    )
    hidden = probe.model_copy(update={"noise_scale": None})
    told = dict(lines(found.model_copy(update={"gradient_probe": hidden})))["gradients"]
    assert told.endswith("noise scale hidden by the noise")
    assert "gradients" not in dict(lines(found))


@pytest.mark.parametrize(
    ("status", "reason", "saved", "says"),
    [
        (Status.FAILED, "h.0.bias needs no gradient", False, "starts a new run, once the fault is corrected"),
        (Status.UNAVAILABLE, "bf16_mixed needs blocks", False, "starts a new run, once the fault is corrected"),
        (Status.FAILED, f"every checkpoint is damaged; {START_AGAIN}", True, "starts a new run"),
        (Status.FAILED, f"rank 1 failed: it is damaged; {START_AGAIN} (its log is x)", True, "starts a new run"),
        (Status.FAILED, "division by zero", True, "continues from the newest checkpoint"),
        (Status.KILLED, "killed by signal 9", False, "starts again, because nothing was saved"),
    ],
)
def test_the_advice_agrees_with_the_reason(home: Home, status: Status, reason: str, saved: bool, says: str) -> None:
    with claim_folder(make_ready(home), home) as claim:
        told = closing(compose(claim.folder, status, reason), saved=saved)
    (hint,) = [text for label, text in told if label == "next"]
    assert says in hint
    assert ("--resume" in hint) is ("starts a new run" not in says)


def last_lines(**changes: Any) -> dict[str, str]:
    """Last lines of a run of a comparison that nobody measured; of several with a label, the last."""
    return dict(closing(record().cells[0].result.model_copy(update={"preset": "demo", **changes}), saved=True))


def test_the_last_lines_have_the_result_and_what_it_is_compared_with() -> None:
    found = last_lines()
    assert found["result"].startswith("validation loss 2.4100 after 60 steps; 52.0 ms a step, ")
    assert found["result"].endswith("peak of tensors 65.0 MiB")
    assert found["against"] == (
        "a uniform guess has a loss of 5.5452; predicted 50.0 ms a step (measured +4.0 %), "
        "a peak of 65.1 MiB (measured −0.2 %)"
    )
    assert (
        "; predicted a traced peak of 65.1 MiB (measured −0.2 %)"
        in (last_lines(predicted=Predicted(tensors_peak_bytes=round(65.1 * 2**20), traced=True))["against"])
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
    assert last_lines(environment=there)["next"] == says


def test_a_known_peak_gives_the_utilization() -> None:
    predicted = Predicted(model_flops=10**9, peak_flops=1e11)
    assert "tokens/s, MFU 19.2%;" in last_lines(predicted=predicted)["result"]
    assert "predicted" not in last_lines(predicted=predicted)["against"]


@pytest.mark.parametrize(("executed", "told"), [(10**9, "MFU 19.2%;"), (1_333_000_000, "MFU 19.2%, HFU 25.6%;")])
def test_recomputation_is_in_the_share_of_executed_flops_only(executed: int, told: str) -> None:
    predicted = Predicted(model_flops=10**9, step_flops=executed, peak_flops=1e11)
    assert f"tokens/s, {told}" in last_lines(predicted=predicted)["result"]


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (0.5, "waits for the device (the host queues it in 50% of its time)"),
        (0.98, "waits for the host (the host queues it in 98% of its time)"),
    ],
)
def test_a_step_of_a_gpu_waits_for_host_or_device(host: float, told: str) -> None:
    block = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, host_seconds=host, device_seconds=0.9)
    assert told in last_lines(blocks=(block,))["result"]
    on_cpu = block.model_copy(update={"host_seconds": None})
    assert "waits" not in last_lines(blocks=(on_cpu,))["result"]


def test_a_run_of_one_step_has_no_quartiles() -> None:
    result = record().cells[0].result
    once = Quartiles(lower=0.05, median=0.05, upper=0.05, count=1)
    one = result.model_copy(update={"steps": 1, "step_seconds": once})
    told = dict(lines(one))
    assert told["trained"].startswith("1 step, ")
    assert told["step"].startswith("50.0 ms (one steady step)")
    assert dict(closing(one, saved=True))["result"].startswith("validation loss 2.4100 after 1 step; ")


def test_an_ending_that_is_no_success_opens_the_result() -> None:
    assert last_lines(status=Status.TIMED_OUT)["result"].startswith("timed out; ")
    nothing = {"val_loss": None, "train_loss": None, "step_seconds": None, "memory": Memory(), "predicted": None}
    found = last_lines(status=Status.FAILED, **nothing)
    assert found["result"] == "failed"
    assert "against" not in found
