"""`assay estimate`: the parts of the peak, its instants, and several stacks."""

from cli.conftest import Assay


def test_an_estimate_prints_the_parts_of_the_peak_and_on_demand_the_instants(assay: Assay) -> None:
    parts, instants = assay("estimate", "demo").out, assay("estimate", "demo", "--instants").out
    assert "saved: attention\t" in parts
    assert "← peak" not in parts
    assert "← peak" in instants
    assert "saved: attention" not in instants


def test_several_stacks_are_columns_of_the_parts(assay: Assay) -> None:
    words = ("estimate", "demo", "--with=bf16_mixed", "--with=activation_checkpointing")
    head = "parts of the peak\tconfiguration\t+ bf16_mixed\t+ activation_checkpointing"
    assert head in assay(*words).out.splitlines()
    value = assay(*words, "--json").value
    columns = value["peak_parts_by_stack"]
    assert columns["+ activation_checkpointing"] == value["peak_parts"]
    assert sum(value["peak_parts"].values()) == value["tensors_peak_bytes"] < sum(columns["configuration"].values())
    assert "peak_parts_by_stack" not in assay("estimate", "demo", "--with=bf16_mixed", "--json").value


def test_a_stack_that_needs_a_later_one_has_no_column(assay: Assay) -> None:
    said = assay("estimate", "demo", "--with=sequence_parallel", "--with=tensor_parallel", "--nproc=2")
    assert "parts of the peak\t+ tensor_parallel" in said.out
    refused = assay("estimate", "demo", "--with=bf16_mixed", "--with=tensor_parallel:degree=3")
    assert (refused.code, refused.out) == (2, "")
