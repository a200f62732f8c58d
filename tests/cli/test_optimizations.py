"""`assay optimizations`: every card can be listed and shown, whatever a run would need beside it."""

import pytest

from assay.optimizations import catalogue
from cli.conftest import Assay


def test_the_list_has_every_optimization(assay: Assay) -> None:
    said = assay("optimizations", "--json")
    assert said.code == 0
    assert [one["optimization"] for one in said.value] == list(catalogue())
    assert all(one["here"].split(":")[0].split(",")[0] in ("available", "unavailable") for one in said.value)


@pytest.mark.parametrize("name", list(catalogue()))
def test_each_card_can_be_shown(assay: Assay, name: str) -> None:
    said = assay("optimizations", name)
    assert said.code == 0
    assert catalogue()[name].title in said.out


def test_an_unknown_name_is_one_sentence(assay: Assay) -> None:
    said = assay("optimizations", "sdpa_atention")
    assert said.code == 2
    assert "sdpa_attention" in said.err
