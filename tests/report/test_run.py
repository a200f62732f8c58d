"""The summary of one run."""

from assay.config import Home
from assay.records.run import Sample
from assay.records.status import Status
from assay.report.blocks import Table
from assay.report.run import lines, run_report
from support.records import result_of


def test_a_figure_that_was_not_measured_has_its_reason(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    assert "not measured" not in str(list(run_report(found, home)))
    poor = found.model_copy(update={"missing": {"memory.process_peak_bytes": "only Linux has it"}})
    (table,) = (one for one in run_report(poor, home) if isinstance(one, Table) and one.columns[0] == "not measured")
    assert table.rows == (("memory.process_peak_bytes", "only Linux has it"),)


def test_a_text_of_the_model_is_one_line(tmp_path) -> None:
    home = Home(tmp_path / "home").ready()
    found = result_of(home, "20260101-000000-abcdef-0001", Status.DONE)
    sample = Sample(prompt="\n", text="to be\n\x1b[31mor not", temperature=0.8, seed=0)
    told = dict(lines(found.model_copy(update={"sample": sample})))
    assert told["text"] == r"'to be\n\x1b[31mor not'"
    assert "text" not in dict(lines(found))
