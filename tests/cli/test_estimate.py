"""`assay estimate`: the parts of the peak, its instants, and stacks as rows."""

import pytest

from assay.api import training
from assay.config import ResolvedRun
from assay.hardware import Machine
from cli.conftest import Assay


def test_an_estimate_prints_the_parts_of_the_peak_and_on_demand_the_instants(assay: Assay) -> None:
    parts, instants = assay("estimate", "demo").out, assay("estimate", "demo", "--instants").out
    assert "saved: attention\t" in parts
    assert "← peak" not in parts
    assert "← peak" in instants
    assert "saved: attention" not in instants


def test_several_stacks_are_rows(assay: Assay) -> None:
    words = ("estimate", "demo", "--with=bf16_mixed", "--with=bf16_mixed+activation_checkpointing")
    lines = assay(*words).out.splitlines()
    names = ["configuration", "bf16_mixed", "bf16_mixed+activation_checkpointing"]
    assert [line.split("\t")[0] for line in lines[1:4]] == names
    assert "\t".join(["parts of the peak", *names]) in lines
    rows = assay(*words, "--json").value["rows"]
    assert list(rows) == names
    for name, row in rows.items():
        stack = () if name == "configuration" else (f"--with={name}",)
        assert row == assay("estimate", "demo", *stack, "--json").value
    assert "rows" not in assay("estimate", "demo", "--with=bf16_mixed", "--json").value


def test_rows_on_a_device_say_whether_they_fit(assay: Assay) -> None:
    said = assay("estimate", "gpt2-1558m", "--device=t4", "--with=fp16_mixed", "--with=activation_checkpointing")
    head, *rows = said.out.splitlines()
    assert head.endswith("\tstep time\tdoes it fit?")
    assert [row.split("\t")[-1] for row in rows[:3]] == ["does not fit"] * 3


def test_rows_over_ranks_leave_out_a_configuration_that_nothing_divides(assay: Assay) -> None:
    words = ("estimate", "demo", "--nproc=2", "--with=data_parallel", "--with=fully_sharded", "--json")
    assert list(assay(*words).value["rows"]) == ["data_parallel", "fully_sharded"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--with=bf16_mixed", "--with=tensor_parallel:degree=3"), "3"),
        (("--with=sgd", "--with=sgd"), "sgd is given twice"),
        (
            ("--with=sgd", "--with=tf32", "--instants"),
            "--instants has one row; join the techniques, as in --with sgd+tf32",
        ),
        (("--with=sgd", "--with=tf32", "--trace"), "--trace has one row"),
        (("--with=sgd", "--with=tf32", "--absent", "--device=h100"), "--absent has one row"),
    ],
)
def test_rows_that_cannot_be_are_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("estimate", "demo", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.sentence()


def test_a_technique_that_is_known_to_lose_is_named_before_the_answer(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(run: ResolvedRun, here: Machine) -> list[str]:
        return [f"{run.optimizations[0].name}: slower {'there' if here.absent else 'here'}"]

    monkeypatch.setattr(training, "slower_techniques", named)
    asked = ("estimate", "demo", "--with", "sdpa_attention")
    said = assay(*asked)
    assert (said.code, said.err.splitlines()) == (0, ["sdpa_attention: slower here"])
    assert assay(*asked, "--device", "h100").err.splitlines()[-1] == "sdpa_attention: slower there"
