import pytest

from assay.analysis.comparison import analyse
from assay.records.study import ComparisonRecord, StudyEnding
from support.comparisons import record

MIXED = "cells started a process of their own, because the server"


def begun(*ways: bool | None) -> ComparisonRecord:
    """A record whose cells began in these ways; the last one holds for all others."""
    made = record(seeds=1, treatments=("bf16_mixed",))
    told = (*ways, *[ways[-1]] * (len(made.cells) - len(ways)))
    cells = (one.model_copy(update={"forked": way}) for one, way in zip(made.cells, told, strict=True))
    return made.model_copy(update={"cells": tuple(cells)})


@pytest.mark.parametrize("ways", [(True,), (False,), (None,), (None, False), (None, True)])
def test_cells_that_began_in_one_way_need_no_caveat(ways: tuple[bool | None, ...]) -> None:
    assert not any(MIXED in said for said in analyse(begun(*ways)).caveats)


def test_a_server_that_died_is_said_once() -> None:
    said = [one for one in analyse(begun(True, True, False)).caveats if MIXED in one]
    assert len(said) == 1
    assert said[0].startswith(f"1 of 3 {MIXED}")
    assert "process memory is not comparable" in said[0]


def test_a_study_that_was_cut_short_says_so_and_a_complete_one_does_not() -> None:
    made = record(seeds=3, treatments=("bf16_mixed", "sdpa_attention"))
    kept = tuple(one for one in made.cells if one.cell.seed == 0 or one.cell.treatment != "sdpa_attention")
    left = tuple(one.cell for one in made.cells if one not in kept)
    said = analyse(
        made.model_copy(update={"cells": kept, "held_back": left, "ending": StudyEnding.BUDGET_REACHED})
    ).caveats
    assert "The limit of time ended the study before 2 cells could begin: sdpa_attention, seed 1; " in " ".join(said)
    assert "Fewer processes than planned: sdpa_attention (1 of 3)." in said
    assert "No interval of the loss, because fewer than three seeds ran: sdpa_attention." in said
    assert not any("limit of time" in one for one in analyse(made).caveats)
