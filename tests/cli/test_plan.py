"""`assay estimate --nodes`: the plan in words and as JSON, quick, and bad input as one sentence."""

import pytest

from cli.conftest import Assay
from support.imports import HEAVY, imported

PLAN = (
    "estimate",
    "gpt2-1558m",
    "training.batch_size=64",
    "model.n_head=20",
    "--with=bf16_mixed+tensor_parallel:degree=4+pipeline_parallel:degree=2,micro_batches=8+data_parallel",
    "--nodes=4",
    "--gpus-per-node=8",
    "--gpu=h100",
)


def test_a_plan_says_all_that_matters(assay: Assay) -> None:
    said = assay(*PLAN)
    assert said.code == 0
    assert said.out.startswith("32 ranks: pp=2 × dp=4 × tp=4; 4 nodes of 8\n")
    lines = dict(line.split("\t", 1) for line in said.out.splitlines() if "\t" in line)
    assert lines["machines"].startswith("4 × 8 H100 80 GB, NVLink 4 (H100) inside a node, InfiniBand NDR between")
    assert lines["batch"] == "65.5k tokens, 8 micro-batches of 2 sequences per replica"
    assert "(p−1)/(m+p−1) = 11.1%" in lines["pipeline bubble"]
    assert lines["does it fit?"].startswith("yes, in 79.2 GiB")
    assert {"weights", "gradients", "optimizer", "activations", "step time", "tokens/s", "MFU"} <= set(lines)
    assert lines["tp"].startswith("the tensors of a layer\t")
    assert "NVLink" in lines["tp"]
    assert [lines[axis].split("\t")[1] for axis in ("tp", "dp")] == ["branch sums", "gradients"]
    assert lines["pp"].split("\t")[3] == lines["dp"].split("\t")[3] == "InfiniBand NDR"
    assert "nothing measured" in said.out


def test_json_is_the_same_plan(assay: Assay) -> None:
    value = assay(*PLAN, "--json").value
    assert value["mesh"] == {"pp": 2, "dp": 4, "cp": 1, "tp": 4}
    assert value["gpu"] == "H100 80 GB"
    assert value["micro_batches"] == 8
    assert set(value["sent"]) == {"pp", "tp", "dp+cp"}
    parts = value["rank_bytes"]
    assert parts["total"] == sum(parts[part] for part in ("weights", "gradients", "optimizer", "activations"))
    assert parts["total"] == max(sum(stage.values()) - stage["parameters"] for stage in value["stages"])
    assert 0 < value["mfu"] <= value["hfu"] < 1


def test_one_option_is_enough(assay: Assay) -> None:
    value = assay("estimate", "gpt2-124m", "--with=data_parallel", "--gpu=h200", "--json").value
    assert (value["nodes"], value["gpus_per_node"]) == (1, 8)


def test_without_them_the_estimate_is_of_this_machine(assay: Assay) -> None:
    assert "instants" in assay("estimate", "gpt2-124m", "--json").value


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes=2", "--gpu=k80", "--with=data_parallel"), "no datasheet of a GPU 'k80' is known"),
        (("--nodes=0", "--with=data_parallel"), "nodes=0 of gpus_per_node=8 is not possible"),
        (("--nodes=2",), "no technique divides the step among 16 GPUs"),
        (("--nodes=2", "--nproc=2", "--with=data_parallel"), "give only one of them"),
        (("--nodes=1", "--with=tensor_parallel:degree=3+data_parallel"), "a multiple of 3 ranks"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_a_plan_imports_nothing_heavy() -> None:
    assert not imported("-m", "assay.cli.main", *PLAN, "--json") & (HEAVY - {"omegaconf"})


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
