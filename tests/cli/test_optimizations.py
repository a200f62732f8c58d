"""`assay optimizations`: every card can be listed and shown, whatever a run would need beside it."""

from pathlib import Path

import pytest

from assay.analysis.catalogue import read, shipped_path
from assay.optimizations import catalogue
from cli.conftest import Assay


def test_the_list_has_every_optimization(assay: Assay) -> None:
    said = assay("optimizations", "--json")
    assert said.code == 0
    assert [one["optimization"] for one in said.value] == list(catalogue())
    assert all(one["here"].split(":")[0].split(",")[0] in ("available", "unavailable") for one in said.value)


def test_the_list_begins_with_four_to_try_first_and_fits_a_terminal(assay: Assay) -> None:
    said = assay("optimizations")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    first, others = said.out.split("\n\n")[:2]
    named = {line.split()[0]: line.split(maxsplit=1)[1] for line in first.splitlines()[1:]}
    assert list(named) == ["sdpa_attention", "bf16_mixed", "activation_checkpointing", "fused_adamw"]
    assert all(len(why.split()) >= 5 and not why.endswith("…") for why in named.values())
    assert [line.split()[0] for line in others.splitlines()[1:]] == [one for one in catalogue() if one not in named]


@pytest.mark.parametrize("name", list(catalogue()))
def test_each_card_can_be_shown(assay: Assay, name: str) -> None:
    said = assay("optimizations", name)
    assert said.code == 0
    assert catalogue()[name].title in said.out


def test_an_unknown_name_is_one_sentence(assay: Assay) -> None:
    said = assay("optimizations", "sdpa_atention")
    assert said.code == 2
    assert "sdpa_attention" in said.err


def test_the_table_is_of_the_file_that_is_named(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(read(shipped_path()).model_dump_json())
    said = assay("optimizations", "--table")
    assert said.code == 0
    treatments = [line.split("\t")[0] for line in said.out.splitlines()[2:]]
    assert [one.split("+")[-1].partition(":")[0] for one in treatments][: len(catalogue())] == list(catalogue())
    assert assay("optimizations", "--table", "--measured", "measured.json").out == said.out
    whole = assay("optimizations", "--table", "--json").value
    assert {one["optimization"] for one in whole} == {one.optimization for one in read(shipped_path()).entries}
    assert assay("optimizations", "--table", "--measured", "nowhere.json").code == 2
