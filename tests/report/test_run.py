"""The summary of one run."""

from assay.config import Home
from assay.records.gradients import GradientProbe, NoiseScale
from assay.records.memory import Memory
from assay.records.run import SampledText
from assay.records.status import Status
from assay.report.blocks import Table
from assay.report.formats import UNKNOWN
from assay.report.run import lines, run_report
from support.records import result_of


def test_a_figure_that_was_not_measured_has_its_reason(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    assert "not measured" not in str(list(run_report(found, home)))
    poor = found.model_copy(update={"missing": {"memory.process_peak_bytes": "only Linux has it"}})
    (table,) = (one for one in run_report(poor, home) if isinstance(one, Table) and one.columns[0] == "not measured")
    assert table.rows == (("memory.process_peak_bytes", "only Linux has it"),)


def test_workspaces_and_blocks_that_wait_have_rows_of_their_own(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    on_gpu = Memory(tensors_peak_bytes=2**20, library_scratch_bytes=2**26, waiting_peak_bytes=2**21)
    (table,) = (
        one
        for one in run_report(found.model_copy(update={"memory": on_gpu}), home)
        if isinstance(one, Table) and one.columns[0] == "memory"
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["library scratch, in addition to the tensors"] == ("64.0 MiB", UNKNOWN)
    assert rows["freed, waiting for another stream"] == ("2.00 MiB", UNKNOWN)
    assert "freed, waiting for another stream" not in str(list(run_report(found, home)))


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
