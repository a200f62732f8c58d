from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.config import Run
from assay.optimizations import Numerics, numerics_of
from assay.records.evidence import Evidence, ValueProof
from assay.records.memory import Memory
from assay.records.prediction import Predicted
from assay.records.status import Status
from assay.records.study import ComparisonRecord
from assay.report.study.view import StudyView
from support.comparisons import ENVIRONMENT, FACTORS, TREATMENTS, record

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
