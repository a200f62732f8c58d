"""`assay plan`: the plan in words and as JSON, quick, and bad input as one sentence."""

import pytest

from cli.conftest import Assay
from support.imports import HEAVY, imported

PLAN = (
    "plan",
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
    assert "For one GPU" not in said.out


def test_a_plan_of_one_gpu_names_what_predicts_it_better(assay: Assay) -> None:
    said = assay("plan", "gpt2-124m", "--gpu", "a100", "--gpus-per-node", "1", "--with", "bf16_mixed")
    assert said.code == 0
    assert "For one GPU `assay estimate --device` is nearer" in said.out


def test_json_is_the_same_plan(assay: Assay) -> None:
    value = assay(*PLAN, "--json").value
    assert value["mesh"] == {"pp": 2, "dp": 4, "cp": 1, "tp": 4}
    assert value["gpu"] == "H100 80 GB"
    assert value["micro_batches"] == 8
    assert set(value["sent"]) == {"pp", "tp", "dp+cp"}
    parts = value["rank_bytes"]
    assert parts["total"] == sum(parts[part] for part in ("weights", "gradients", "optimizer", "activations", "loss"))
    assert set(parts) == {"weights", "gradients", "optimizer", "activations", "loss", "total"}
    assert parts["total"] == max(sum(stage.values()) - stage["parameters"] for stage in value["stages"])
    assert 0 < value["mfu"] <= value["hfu"] < 1


def test_one_option_is_enough(assay: Assay) -> None:
    value = assay("plan", "gpt2-124m", "--with=data_parallel", "--gpu=h200", "--json").value
    assert (value["nodes"], value["gpus_per_node"]) == (1, 8)


def test_several_stacks_are_joined_to_one(assay: Assay) -> None:
    joined = assay("plan", "gpt2-124m", "--with=bf16_mixed+data_parallel", "--json").value
    assert assay("plan", "gpt2-124m", "--with=bf16_mixed", "--with=data_parallel", "--json").value == joined


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--nodes=2", "--gpu=k80", "--with=data_parallel"), "no datasheet of a GPU 'k80' is known"),
        (("--nodes=0", "--with=data_parallel"), "nodes=0 of gpus_per_node=8 is not possible"),
        (("--nodes=2",), "no technique divides the step among 16 GPUs"),
        (("--nodes=2", "--nproc=2", "--with=data_parallel"), "No such option: --nproc"),
        (("--nodes=1", "--with=tensor_parallel:degree=3+data_parallel"), "a multiple of 3 ranks"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("plan", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_a_plan_imports_nothing_heavy() -> None:
    assert not imported("-m", "assay.cli.main", *PLAN, "--json") & (HEAVY - {"omegaconf"})
