import pytest

from assay.analysis.comparison import analyse
from assay.analysis.timed_processes import disturbances
from assay.records.study import ComparisonRecord, StudyEnding
from assay.records.timing import Block, GpuState, Round
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
    begun = "The limit of time ended the study before 2 of 15 cells could begin: "
    assert f"{begun}sdpa_attention, seed 1; sdpa_attention, seed 2." in said
    assert "Fewer processes than planned: sdpa_attention (1 of 3)." in said
    assert "No interval of the loss, because fewer than three seeds ran: sdpa_attention." in said
    assert not any("limit of time" in one for one in analyse(made).caveats)
    late = tuple(one.cell for one in made.cells if one.cell.seed > 0)
    early = tuple(one for one in made.cells if one.cell.seed == 0)
    cut = {"cells": early, "held_back": late, "ending": StudyEnding.BUDGET_REACHED}
    said = analyse(made.model_copy(update=cut)).caveats
    assert "The limit of time ended the study before 8 of 15 cells could begin: all at seed 1; all at seed 2." in said


def test_seeds_that_have_not_begun_lack_no_baseline() -> None:
    made = record(seeds=3)
    kept = tuple(one for one in made.cells if one.cell.seed == 0)
    assert not any("no baseline" in one for one in analyse(made.model_copy(update={"cells": kept})).caveats)
    lone = tuple(one for one in made.cells if one.cell.seed == 0 or one.cell.treatment == "sdpa_attention")
    said = analyse(made.model_copy(update={"cells": lone})).caveats
    assert "Losses at seeds 1, 2 are not compared, because there is no baseline." in said


def test_a_slowed_gpu_is_named_with_its_reason() -> None:
    made = record(seeds=3)
    first = made.cells[0]
    state = GpuState(clock_hertz=1e9, watts=300.0, celsius=88.0, slowed_by=("temperature, by hardware",))
    slow = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, gpu=state)
    cell = first.model_copy(update={"result": first.result.model_copy(update={"blocks": (slow,)})})
    name = first.cell.name
    ended = Round(seed=0, wave=0, number=1, order=(name,), disturbed=(name,))
    found = made.model_copy(update={"cells": (cell, *made.cells[1:]), "rounds": (ended,)})
    (said,) = disturbances(found)
    assert "or the GPU was slowed (in 1 blocks, because of temperature, by hardware)" in said
    (without,) = disturbances(made.model_copy(update={"rounds": (ended,)}))
    assert "GPU" not in without
