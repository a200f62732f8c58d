"""Caveats: times that are not compared, suspicious results, and what a study that ended early cannot tell."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from assay.analysis.caveats import between_of, lost_effects, outside_of
from assay.analysis.choose.answer import targets
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.effects import disturbances, rounds
from assay.analysis.factors.changes import row_changes
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.analysis.row import Row
from assay.config import Run
from assay.optimizations import Numerics, numerics_of
from assay.records.evidence import Evidence, ValueProof
from assay.records.prediction import Memory, Predicted
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord, StudyEnding
from assay.records.timing import Block, GpuState, Outside, Round
from assay.report.study.view import StudyView
from support.comparisons import ENVIRONMENT, FACTORS, TREATMENTS, record
from support.factorials import factorial, study

SPINNER, HONEST = TREATMENTS[1], TREATMENTS[0]
TURN_SECONDS = 0.5


def with_outside(made: ComparisonRecord, used: dict[str, float]) -> ComparisonRecord:
    """Every turn takes half a second; cells of some rows use processor seconds in each round of their first wave."""
    first = {one.cell.name: one.cell.treatment for one in made.cells if one.wave == made.cells[0].wave}

    def filled(one: Round) -> Round:
        seconds = {name: used.get(first.get(name, ""), 0.0) for name in one.order}
        return one.model_copy(
            update={"turn_seconds": dict.fromkeys(one.order, TURN_SECONDS), "outside_seconds": seconds}
        )

    return made.model_copy(update={"rounds": tuple(filled(one) for one in made.rounds)})


def row_of(comparison: Comparison, treatment: str) -> Row:
    return next(row for row in comparison.rows if row.treatment == treatment)


def with_between(made: ComparisonRecord, share: float, more: dict[str, float]) -> ComparisonRecord:
    """A share of the steps' time passes between the steps of each block, and in some rows more."""

    def filled(one: CellResult) -> CellResult:
        of_row = share + more.get(one.cell.treatment, 0.0)
        blocks = tuple(
            block.model_copy(update={"between_seconds": of_row * block.seconds}) for block in one.result.blocks
        )
        return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})

    return made.model_copy(update={"cells": tuple(filled(one) for one in made.cells)})


def test_times_of_a_row_that_worked_in_the_turns_of_others_are_not_compared() -> None:
    plain = analyse(record())
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    before, after = (row_of(one, SPINNER) for one in (plain, spun))
    times = [name for name, one in metrics().items() if one.kind == "timed" and one.unit != "bytes"]
    assert [after.metrics[name] for name in times] == [None] * len(times)
    assert not set(times) & {*after.effects, *after.verdicts}
    assert after.break_even is None
    assert after.metrics["process_peak_bytes"] == before.metrics["process_peak_bytes"]
    assert after.metrics["val_loss"] == before.metrics["val_loss"]
    assert set(before.effects) - set(after.effects) == set(times)
    others = (len(TREATMENTS) + 1) * TURN_SECONDS * 5
    assert after.outside == Outside(seconds=5.0, of_seconds=others)
    assert after.flags == (
        f"times are not compared: its processes used 5 processor seconds while other runs were timed for "
        f"{others:.2g} s, more than 2 %",
    )
    shown = next(row for row in spun.to_json()["rows"] if row["treatment"] == SPINNER)
    assert shown["outside"] == {"seconds": 5.0, "of_seconds": others, "ranks": 1}


def test_times_of_the_other_rows_stay() -> None:
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    honest = row_of(spun, HONEST)
    assert STEP_SECONDS.name in honest.effects
    assert honest.flags == ()
    assert honest.outside is not None
    assert not honest.outside.too_much


def test_a_study_without_times_has_no_caution_on_them() -> None:
    made = with_between(record(), 0.0, {SPINNER: 1.0, BASELINE: 1.0})
    assert row_of(analyse(made), SPINNER).flags
    found = analyse(made.model_copy(update={"protocol": made.protocol.model_copy(update={"blocks": 0})}))
    assert not any(row.flags for row in (*found.rows, found.baseline))
    assert not any("times" in said.lower() for said in found.caveats)


@pytest.mark.parametrize(("share", "flagged"), [(0.019, False), (0.021, True)])
def test_the_bound_is_a_share_of_the_turns_of_others(*, share: float, flagged: bool) -> None:
    others = (len(TREATMENTS) + 1) * TURN_SECONDS
    spun = analyse(with_outside(record(), {SPINNER: share * others}))
    assert [bool(row.flags) for row in spun.rows] == [flagged and name == SPINNER for name in TREATMENTS]


def test_each_rank_may_use_its_share() -> None:
    assert Outside(seconds=0.15, of_seconds=4.0).too_much
    assert not Outside(seconds=0.15, of_seconds=4.0, ranks=2).too_much


@pytest.mark.parametrize("usual", [0.0, 0.04, 0.3])
@pytest.mark.parametrize(("more", "flagged"), [(0.04, False), (0.06, True)])
def test_work_between_steps_ends_a_rows_claim_on_times(*, usual: float, more: float, flagged: bool) -> None:
    found = analyse(with_between(record(), usual, {SPINNER: more}))
    assert [bool(row.flags) for row in found.rows] == [flagged and name == SPINNER for name in TREATMENTS]
    assert (STEP_SECONDS.name in row_of(found, SPINNER).effects) is not flagged
    if flagged:
        (said,) = row_of(found, SPINNER).flags
        assert said.startswith("times are not compared: ")
        assert f"the baselines' share is {100 * usual:.1f} %, and 5 points more are allowed" in said


def with_gaps(made: ComparisonRecord, gaps: dict[str, float]) -> ComparisonRecord:
    """The median time between two steps is 0.15 ms, and in some rows another, in seconds."""

    def filled(one: CellResult) -> CellResult:
        gap = {"usual_between_seconds": gaps.get(one.cell.treatment, 1.5e-4), "between_seconds": 0.0}
        blocks = tuple(block.model_copy(update=gap) for block in one.result.blocks)
        return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})

    return made.model_copy(update={"cells": tuple(filled(one) for one in made.cells)})


def test_a_longer_time_between_all_steps_than_in_the_baselines_ends_a_rows_claim_on_times() -> None:
    blocks = [block for one in record().of(SPINNER) for block in one.result.blocks]
    seconds = sum(one.seconds for one in blocks) / sum(one.steps for one in blocks)
    for more, flagged in ((1.3e-4 + 0.01 * seconds, False), (1.7e-4 + 0.01 * seconds, True)):
        found = analyse(with_gaps(record(), {SPINNER: 1.5e-4 + more}))
        assert [bool(row.flags) for row in found.rows] == [flagged and name == SPINNER for name in TREATMENTS]
    (said,) = row_of(found, SPINNER).flags
    assert "0.15 ms between two of a baseline: no step's clock has the difference" in said


def test_a_few_ticks_of_the_kernels_clock_do_not_count() -> None:
    assert not Outside(seconds=0.04, of_seconds=0.1).too_much
    assert Outside(seconds=0.05, of_seconds=0.1).too_much


def test_a_baseline_that_works_in_the_turns_of_others_is_no_control() -> None:
    one = analyse(with_outside(record(), {BASELINE: 1.0}))
    assert all(STEP_SECONDS.name in row.effects for row in one.rows)
    assert any(said.startswith("Times of baseline are not compared, so the other baseline") for said in one.caveats)
    both = analyse(with_outside(record(), {BASELINE: 1.0, AGAIN: 1.0}))
    assert not any(STEP_SECONDS.name in row.effects for row in (*both.rows, both.again))
    assert both.baseline.metrics[STEP_SECONDS.name] is None
    assert any("so no row has a change of time" in said for said in both.caveats)


def test_effects_of_factors_and_times_to_a_target_leave_such_a_row_out() -> None:
    spun = analyse(with_outside(record(), {SPINNER: 1.0}))
    found = row_changes(spun, STEP_SECONDS)
    assert found is not None
    assert SPINNER not in found.rows
    assert HONEST in found.rows
    reached = targets(spun)
    assert reached is not None
    timeless = {one.row.treatment for one in reached.rows if all(run.seconds is None for run in one.runs)}
    assert timeless == {SPINNER}


def test_older_rounds_say_nothing_about_it() -> None:
    assert all(outside_of(record(), name) is None and between_of(record(), [name]) is None for name in TREATMENTS)
    assert all(row.outside is None for row in analyse(record()).rows)


def test_a_round_that_waiting_cells_disturbed_is_left_out() -> None:
    made = record()
    wave = made.cells[0].wave
    named = next(one for one in made.rounds if one.wave == wave and one.number == 2)
    disturbed = named.model_copy(update={"disturbed": named.order[:1]})
    told = [disturbed if one is named else one for one in made.rounds]
    assert rounds(made.cells, told)[wave] == [0, 2, 3, 4]
    assert rounds(made.cells, made.rounds)[wave] == [0, 1, 2, 3, 4]


BF16, CHECKPOINTING = TREATMENTS[1], TREATMENTS[2]


def flags_of(comparison: Comparison, treatment: str) -> str:
    return "; ".join(next(row for row in comparison.rows if row.treatment == treatment).flags)


def with_loss_shift(treatment: str, shift: float, **fields: Any) -> Comparison:
    return analyse(record(factors={**FACTORS, treatment: (*FACTORS[treatment][:3], shift)}, **fields))


def with_result_at_first_seed(treatment: str, **changes: Any) -> ComparisonRecord:
    """A sound record but for one result."""
    made = record()
    first = made.of(treatment)[0]
    odd = first.model_copy(update={"result": first.result.model_copy(update=changes)})
    return made.model_copy(update={"cells": tuple(odd if one is first else one for one in made.cells)})


def test_a_sound_comparison_has_no_flags() -> None:
    assert [row.flags for row in analyse(record()).rows] == [()] * len(TREATMENTS)


def test_a_treatment_that_trains_differently_and_has_the_baselines_losses_is_too_equal() -> None:
    made = record(treatments=("lion",), factors={**FACTORS, "lion": (1.0, 1.0, 1.0, 0.0)})
    (row,) = analyse(made).rows
    assert row.status is Status.DONE
    assert any("too equal: the loss equals the baseline's to the last bit at seeds 0, 1" in flag for flag in row.flags)
    other = record(treatments=("lion",), factors={**FACTORS, "lion": (1.0, 1.0, 1.0, 9.0)})
    assert analyse(other).rows[0].flags == ()


@pytest.mark.parametrize(("groups", "flagged"), [((0, 0), False), ((1, 0), False), ((1, 1), True)])
def test_a_row_that_rounds_and_evaluates_in_float32_at_several_seeds_is_too_equal(
    groups: tuple[int, int], *, flagged: bool
) -> None:
    made = record()
    wide = dict(zip((one.cell.name for one in made.of(BF16)), groups, strict=False))
    cells = tuple(
        one.model_copy(
            update={"result": one.result.model_copy(update={"values": ValueProof(verdict=True, wide_groups=number)})}
        )
        if (number := wide.get(one.cell.name)) is not None
        else one
        for one in made.cells
    )
    said = flags_of(analyse(made.model_copy(update={"cells": cells})), BF16)
    assert ("2 evaluated groups of batches have float32's loss" in said) == flagged


def test_two_treatments_that_train_unlike_and_end_alike_are_too_equal() -> None:
    shift = FACTORS[TREATMENTS[0]][3]
    alike = with_loss_shift(BF16, shift)
    assert f"too equal: the loss equals that of {TREATMENTS[0]}" in flags_of(alike, BF16)
    assert f"too equal: the loss equals that of {BF16}" in flags_of(alike, TREATMENTS[0])
    assert "too equal" not in flags_of(alike, CHECKPOINTING)


@pytest.mark.parametrize(
    ("stack", "promise"),
    [
        ("", Numerics.EXACT),
        ("activation_checkpointing", Numerics.EXACT),
        ("activation_checkpointing+sdpa_attention", Numerics.REASSOCIATED),
        ("sdpa_attention+bf16_mixed+activation_checkpointing", Numerics.LOSSY),
    ],
)
def test_a_stack_promises_what_its_loosest_part_does(stack: str, promise: Numerics) -> None:
    assert numerics_of(Run.model_validate({"optimizations": stack})) is promise


def test_a_peak_far_from_its_prediction_is_flagged() -> None:
    memory = Memory(tensors_peak_bytes=100_000_000)
    changes = {
        BF16: {"memory": memory, "predicted": Predicted(tensors_peak_bytes=88_000_000)},
        CHECKPOINTING: {"memory": memory, "predicted": Predicted(tensors_peak_bytes=99_000_000)},
    }
    comparison = analyse(record(changes=changes))
    assert flags_of(comparison, BF16).startswith("the peak of tensors is 95.4 MiB, but 83.9 MiB was predicted: ")
    assert flags_of(comparison, CHECKPOINTING) == ""


def test_a_peak_that_does_not_repeat_is_flagged() -> None:
    made = record()
    first, *rest = made.of(BF16)
    odd = first.model_copy(
        update={"result": first.result.model_copy(update={"memory": Memory(tensors_peak_bytes=55_207_527)})}
    )
    others = [one for one in made.cells if one.cell.treatment != BF16]
    comparison = analyse(made.model_copy(update={"cells": (*others, odd, *rest)}))
    assert "differs between processes" in flags_of(comparison, BF16)
    row = next(row for row in comparison.rows if row.treatment == BF16)
    assert row.effects["tensors_peak_bytes"].interval is not None


def test_a_treatment_without_proof_is_flagged() -> None:
    assert "bf16_mixed has no recorded proof" in flags_of(analyse(record(changes={BF16: {"evidence": ()}})), BF16)


def test_a_proof_that_one_seed_lacks_is_flagged() -> None:
    comparison = analyse(with_result_at_first_seed(BF16, evidence=()))
    assert "bf16_mixed has no recorded proof" in flags_of(comparison, BF16)


def test_a_proof_that_failed_is_flagged_whatever_the_run_ended_as() -> None:
    refuted = (Evidence(optimization=BF16, observed="0 of 49 matmuls in bfloat16", verdict=False),)
    flags = flags_of(analyse(record(changes={BF16: {"evidence": refuted}})), BF16)
    assert "the proof of bf16_mixed failed: 0 of 49 matmuls in bfloat16" in flags


def test_a_peak_that_one_seed_lacks_is_flagged() -> None:
    comparison = analyse(with_result_at_first_seed(BF16, memory=Memory()))
    assert "the peak of tensors was not measured at every seed" in flags_of(comparison, BF16)


def test_two_proofs_of_one_treatment_agree_between_seeds() -> None:
    proofs = tuple(Evidence(optimization=BF16, observed=said, verdict=True) for said in ("49 of 49", "0 wrong"))
    assert flags_of(analyse(record(changes={BF16: {"evidence": proofs}})), BF16) == ""


def test_a_time_in_a_proof_may_differ_between_seeds() -> None:
    def waited(time: str) -> tuple[Evidence, ...]:
        return (Evidence(optimization=BF16, observed=f"16 of 16 sequences; the step waited {time}", verdict=True),)

    made = record(changes={BF16: {"evidence": waited("890 µs")}})
    cells = list(made.cells)
    last = max(place for place, one in enumerate(cells) if one.cell.treatment == BF16)
    late = cells[last].result.model_copy(update={"evidence": waited("1.20 ms")})
    cells[last] = cells[last].model_copy(update={"result": late})
    assert flags_of(analyse(made.model_copy(update={"cells": tuple(cells)})), BF16) == ""


def test_a_proof_that_changes_with_the_seed_is_flagged() -> None:
    made = record()
    cells = tuple(
        one.model_copy(
            update={
                "result": one.result.model_copy(
                    update={
                        "evidence": (
                            Evidence(optimization=BF16, observed=f"{one.cell.seed} of 49 matmuls", verdict=True),
                        )
                    }
                )
            }
        )
        if one.cell.treatment == BF16
        else one
        for one in made.cells
    )
    assert "differs between processes" in flags_of(analyse(made.model_copy(update={"cells": cells})), BF16)


def test_processes_of_as_many_threads_as_the_baselines_one_are_compared_with_a_caution() -> None:
    twice = ENVIRONMENT.model_copy(update={"threads": 2 * ENVIRONMENT.threads})
    made = record(changes={BF16: {"environment": twice}})
    cells = tuple(
        one.model_copy(
            update={
                "result": one.result.model_copy(update={"config": one.result.config.model_copy(update={"ranks": 2})})
            }
        )
        if one.cell.treatment == BF16
        else one
        for one in made.cells
    )
    comparison = analyse(made.model_copy(update={"cells": cells}))
    assert next(row for row in comparison.rows if row.treatment == BF16).effects
    assert "its 2 processes used" in flags_of(comparison, BF16)
    untimed = made.model_copy(update={"cells": cells, "protocol": made.protocol.model_copy(update={"blocks": 0})})
    assert "its 2 processes used" not in flags_of(analyse(untimed), BF16), "there are no times"
    alone = analyse(made)
    assert next(row for row in alone.rows if row.treatment == BF16).effects == {}


def test_unlike_environments_are_not_compared() -> None:
    other = ENVIRONMENT.model_copy(update={"torch": "2.12.0", "threads": 1})
    comparison = analyse(record(changes={BF16: {"environment": other}}))
    row = next(row for row in comparison.rows if row.treatment == BF16)
    assert row.effects == {}
    assert row.metrics["step_seconds"] is not None
    assert "not compared: the baseline ran with different torch, threads" in flags_of(comparison, BF16)


def test_a_study_with_a_technique_that_is_gone_is_still_analysed() -> None:
    """A user's own technique is not known where its folder is not."""
    known = record(seeds=3)
    gone = ComparisonRecord.model_validate_json(known.model_dump_json().replace("sdpa_attention", "gone_technique"))
    found = {row.treatment.partition(":")[0]: row for row in analyse(gone).rows}
    assert set(found) >= {"gone_technique"}
    assert (
        found["gone_technique"].metrics
        == {row.treatment.partition(":")[0]: row for row in analyse(known).rows}["sdpa_attention"].metrics
    )
    assert [one.section.name for one in StudyView(analyse(gone)).sections]


UNFINISHED_FACTORS = {"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]}
MAIN = [(("a", "1"),), (("b", "1"),), (("c", "1"),)]


def without(begins: Callable[[Mapping[str, str]], bool]) -> ComparisonRecord:
    """A factorial of three factors, whose other rows were held back."""
    whole = study(factorial(UNFINISHED_FACTORS), lambda levels: (1.0, 1.0, 1.0))
    ran = tuple(one for one in whole.cells if begins(one.cell.levels))
    left = tuple(one.cell for one in whole.cells if one not in ran)
    return whole.model_copy(update={"cells": ran, "held_back": left})


def changed(levels: Mapping[str, str]) -> int:
    return sum(level == "1" for level in levels.values())


def test_a_whole_factorial_lacks_nothing() -> None:
    assert lost_effects(without(lambda levels: True)) == []


def test_without_the_row_that_changes_all_their_interaction_is_not_known() -> None:
    lost = lost_effects(without(lambda levels: changed(levels) < 3))
    assert (("a", "1"), ("b", "1"), ("c", "1")) in lost
    assert lost[:3] == MAIN, "an effect is an average over all levels of the others"


def test_without_a_factor_its_effects_are_lost_and_the_others_are_not() -> None:
    lost = lost_effects(without(lambda levels: levels["c"] == "0"))
    assert lost == [one for one in lost if any(key == "c" for key, _ in one)]
    assert (("c", "1"),) in lost
    assert len(lost) == 4


@pytest.mark.parametrize("kind", ["comparison", "one_at_a_time"])
def test_a_design_without_average_effects_loses_none(kind: str) -> None:
    rows = [{"a": "0", "b": "0"}, {"a": "1", "b": "0"}, {"a": "0", "b": "1"}]
    whole = study(rows, lambda levels: (1.0, 1.0, 1.0), kind=kind)
    left = tuple(one for one in whole.cells if one.cell.levels["b"] == "1")
    ran = tuple(one for one in whole.cells if one not in left)
    assert lost_effects(whole.model_copy(update={"cells": ran, "held_back": tuple(one.cell for one in left)})) == []


MIXED = "runs started a process of their own, because the server"


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
    begun = "The limit of time ended the study before 2 of 15 runs could begin: "
    assert f"{begun}sdpa_attention, seed 1; sdpa_attention, seed 2." in said
    assert "Fewer processes than planned: sdpa_attention (1 of 3)." in said
    assert "No interval of the loss, because fewer than three seeds ran: sdpa_attention." in said
    assert not any("limit of time" in one for one in analyse(made).caveats)
    late = tuple(one.cell for one in made.cells if one.cell.seed > 0)
    early = tuple(one for one in made.cells if one.cell.seed == 0)
    cut = {"cells": early, "held_back": late, "ending": StudyEnding.BUDGET_REACHED}
    said = analyse(made.model_copy(update=cut)).caveats
    assert "The limit of time ended the study before 8 of 15 runs could begin: all at seed 1; all at seed 2." in said


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
