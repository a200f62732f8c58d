import json
import math
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.analysis.effects import Verdict
from assay.analysis.metrics import metrics
from assay.analysis.row import Row
from assay.records.prediction import Memory
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord, StudyEnding
from support.comparisons import FACTORS, TREATMENTS, record

NOTHING: dict[str, Any] = {
    "blocks": (),
    "evidence": (),
    "step_seconds": None,
    "memory": Memory(),
    "train_loss": None,
    "val_loss": None,
}


def row_of(comparison: Comparison, treatment: str) -> Row:
    return next(row for row in comparison.rows if row.treatment == treatment)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return analyse(record())


def test_a_row_for_each_treatment_in_the_order_of_listing(comparison: Comparison) -> None:
    assert tuple(row.treatment for row in comparison.rows) == TREATMENTS
    assert (comparison.baseline.treatment, comparison.again.treatment) == (BASELINE, AGAIN)


@pytest.mark.parametrize("treatment", TREATMENTS)
def test_the_effects_are_those_that_were_put_in(comparison: Comparison, treatment: str) -> None:
    tensors, process, step, _ = FACTORS[treatment]
    found = row_of(comparison, treatment).effects
    assert found["tensors_peak_bytes"].change == pytest.approx(tensors - 1, abs=1e-6)
    assert found["tensors_peak_bytes"].interval is None
    assert found["process_peak_bytes"].change == pytest.approx(process - 1, abs=0.002)
    assert found["step_seconds"].change == pytest.approx(step - 1, abs=0.02 * step)
    assert found["step_seconds"].pairs == 2


def test_the_ratio_of_two_rows_is_the_change_beside_them(comparison: Comparison) -> None:
    for row in comparison.rows:
        after, before = row.metrics["step_seconds"], comparison.baseline.metrics["step_seconds"]
        assert isinstance(after, float)
        assert isinstance(before, float)
        assert after / before - 1 == pytest.approx(row.effects["step_seconds"].change)
        rate = row.effects["tokens_per_second"].change
        assert (1 + rate) * (1 + row.effects["step_seconds"].change) == pytest.approx(1)


def test_verdicts(comparison: Comparison) -> None:
    stack = row_of(comparison, TREATMENTS[4])
    assert stack.verdicts["step_seconds"] is Verdict.NOT_DISTINGUISHABLE
    assert stack.verdicts["tensors_peak_bytes"] is Verdict.DIFFERS
    assert row_of(comparison, TREATMENTS[1]).verdicts["step_seconds"] is Verdict.DIFFERS
    assert row_of(comparison, TREATMENTS[2]).verdicts["val_loss"] is Verdict.EQUAL
    assert row_of(comparison, TREATMENTS[1]).verdicts["val_loss"] is Verdict.TOO_FEW
    assert Verdict.DIFFERS not in comparison.again.verdicts.values()


def test_three_seeds_give_losses_an_interval() -> None:
    row = row_of(analyse(record(seeds=3)), TREATMENTS[1])
    assert row.effects["val_loss"].interval is not None
    assert row.effects["val_loss"].change == pytest.approx(2e-3 / 2.416)
    assert row.verdicts["val_loss"] is Verdict.DIFFERS


def test_a_treatment_that_ran_out_of_memory_stands_in_the_table() -> None:
    reason = "the allocator asked for 2 GiB"
    changes = {TREATMENTS[0]: {**NOTHING, "status": Status.OUT_OF_MEMORY, "reason": reason}}
    comparison = analyse(record(changes=changes))
    row = row_of(comparison, TREATMENTS[0])
    assert (row.status, row.reason, row.effects) == (Status.OUT_OF_MEMORY, reason, {})
    assert row.metrics["step_seconds"] is None
    assert not comparison.failed


@pytest.mark.parametrize(
    "status", [Status.NO_EFFECT, Status.WRONG_VALUES, Status.KILLED, Status.FAILED, Status.TIMED_OUT]
)
def test_failures(status: Status) -> None:
    comparison = analyse(record(changes={TREATMENTS[0]: {**NOTHING, "status": status, "reason": "so"}}))
    assert comparison.failed
    assert row_of(comparison, TREATMENTS[0]).status is status


def test_a_seed_that_failed_leaves_the_figures_of_the_others() -> None:
    made = record()
    dead = made.of(TREATMENTS[0])[0]
    dead_again = dead.model_copy(
        update={"result": dead.result.model_copy(update={"status": Status.KILLED, "reason": "signal 9"})}
    )
    comparison = analyse(made.model_copy(update={"cells": tuple(dead_again if c is dead else c for c in made.cells)}))
    row = row_of(comparison, TREATMENTS[0])
    assert (row.status, row.finished, row.planned) == (Status.KILLED, 1, 2)
    assert row.effects["step_seconds"].pairs == 1


def test_a_dead_baseline_leaves_the_other_one_as_the_control() -> None:
    dead = {**NOTHING, "status": Status.KILLED, "reason": "signal 9"}
    comparison = analyse(record(changes={BASELINE: dead}))
    row = row_of(comparison, TREATMENTS[0])
    assert row.effects["step_seconds"].change == pytest.approx(-0.12, abs=0.02)
    assert row.effects["tensors_peak_bytes"].change == pytest.approx(-0.28, abs=1e-6)
    assert comparison.again.effects == {}
    assert any("A/A pair is missing" in caveat for caveat in comparison.caveats)


def test_without_a_baseline_there_are_figures_and_no_changes() -> None:
    dead = {**NOTHING, "status": Status.KILLED, "reason": "signal 9"}
    row = row_of(analyse(record(changes={BASELINE: dead, AGAIN: dead})), TREATMENTS[0])
    assert row.effects == {}
    assert row.metrics["step_seconds"] is not None


def test_an_interrupted_comparison_shows_what_was_reached() -> None:
    made = record()
    comparison = analyse(made.model_copy(update={"cells": made.cells[:4], "ending": StudyEnding.INTERRUPTED}))
    assert comparison.interrupted
    reached, missing = row_of(comparison, TREATMENTS[0]), row_of(comparison, TREATMENTS[4])
    assert (reached.status, reached.finished) == (Status.INTERRUPTED, 1)
    assert (missing.status, missing.finished) == (Status.INTERRUPTED, 0)
    assert missing.metrics["val_loss"] == ()


def test_pairs_are_taken_within_a_wave_and_with_its_own_baseline() -> None:
    """The second waves saw a machine at half speed; against the first wave's baseline everything would look slow."""
    made = record(treatments=TREATMENTS[:2])
    cells: list[CellResult] = []
    for one in made.cells:
        if one.cell.treatment == TREATMENTS[1]:
            companion = next(c for c in made.of(BASELINE) if c.cell.seed == one.cell.seed)
            slow_companion = _slowed(companion).model_copy(update={"cell": companion.cell.repeated(2)})
            cells += [c.model_copy(update={"wave": one.wave + 2}) for c in (slow_companion, _slowed(one))]
        else:
            cells.append(one)
    comparison = analyse(made.model_copy(update={"cells": tuple(cells)}))
    found = row_of(comparison, TREATMENTS[1]).effects["step_seconds"]
    assert found.change == pytest.approx(0.65, abs=0.03)
    assert found.pairs == 2
    assert len(comparison.baseline.runs) == 2


def test_cells_that_ran_one_after_another_are_paired_by_seed() -> None:
    made = record()
    alone = tuple(one.model_copy(update={"wave": at}) for at, one in enumerate(made.cells))
    found = row_of(analyse(made.model_copy(update={"cells": alone})), TREATMENTS[0]).effects
    assert found["step_seconds"].pairs == 2
    assert found["step_seconds"].change == pytest.approx(-0.12, abs=0.02)
    assert found["tensors_peak_bytes"].change == pytest.approx(-0.28, abs=1e-6)


def test_blocks_of_one_process_do_not_make_an_interval_narrower() -> None:
    few, many = (analyse(record(seeds=3, between=0.02, noise=noise)) for noise in (0.01, 0.0001))
    widths = [row_of(one, TREATMENTS[0]).effects["step_seconds"].interval for one in (few, many)]
    (low, high), (lower, higher) = (width or (0.0, 0.0) for width in widths)
    assert higher - lower > 0.02
    assert high - low > 0.02
    assert many.resolution["step_seconds"].deviation == pytest.approx(0.02, rel=0.5)


def test_processes_of_one_seed_count_for_times_and_not_for_losses() -> None:
    row = row_of(analyse(record(seeds=2, processes=2)), TREATMENTS[1])
    assert (row.planned, row.finished) == (4, 4)
    assert row.effects["step_seconds"].pairs == 4
    assert row.effects["val_loss"].pairs == 2
    assert len(row.metrics["val_loss"]) == 2  # type: ignore[arg-type]


def test_a_disturbed_round_is_left_out_for_all_cells_of_its_wave() -> None:
    made = record(seeds=3, noise=0.0001)
    cells = tuple(_disturbed(one) if one.cell.treatment == TREATMENTS[0] else one for one in made.cells)
    comparison = analyse(made.model_copy(update={"cells": cells}))
    assert row_of(comparison, TREATMENTS[0]).effects["step_seconds"].change == pytest.approx(-0.12, abs=0.001)


def test_json_has_the_promised_shape(comparison: Comparison) -> None:
    value = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert {"rows", "baseline", "again", "smallest_change", "environment", "caveats"} <= value.keys()
    for row in value["rows"]:
        assert {"treatment", "status", "metrics", "change", "interval", "predicted", "evidence"} <= row.keys()
        assert set(row["change"]) == set(row["interval"]) == set(metrics()) <= set(row["metrics"])
        assert isinstance(row["metrics"]["tensors_peak_bytes"], int)
        assert len(row["metrics"]["val_loss"]) == 2
        assert row["interval"]["tensors_peak_bytes"] is None
        assert row["interval"]["step_seconds"][0] < row["change"]["step_seconds"] < row["interval"]["step_seconds"][1]
        assert row["predicted"]["change"]["tensors_peak_bytes"] == pytest.approx(
            row["change"]["tensors_peak_bytes"], abs=1e-6
        )
        assert all(item.keys() == {"optimization", "observed", "verdict"} for item in row["evidence"])
        assert set(row["distinguishable"].values()) <= {True, False, None}
    smallest = value["smallest_change"]["step_seconds"]
    assert smallest.keys() == {"told", "likely", "deviation", "degrees"}
    assert 0.005 < smallest["told"] < smallest["likely"]
    assert smallest["degrees"] == 7
    assert value["processes"] == 1


def test_frame_has_a_row_per_treatment_and_numbers_as_numbers(comparison: Comparison) -> None:
    frame = comparison.to_frame()
    assert list(frame["treatment"]) == [BASELINE, AGAIN, *TREATMENTS]
    for metric in metrics():
        columns = {metric, f"{metric}_change", f"{metric}_low", f"{metric}_high"}
        assert columns <= set(frame.columns)
        assert all(frame[column].dtype.kind == "f" for column in columns)
    sdpa = frame.set_index("treatment").loc[TREATMENTS[0]]
    assert sdpa["tensors_peak_bytes_change"] == pytest.approx(-0.28, abs=1e-6)
    assert math.isnan(sdpa["tensors_peak_bytes_low"])
    assert sdpa["val_loss"] == pytest.approx(2.413, abs=1e-4)
    assert sdpa["step_seconds_low"] < -0.1 < sdpa["step_seconds_high"] + 0.05
    assert math.isnan(frame["step_seconds_change"].iloc[0])


def test_the_record_survives_a_round_trip() -> None:
    made = record()
    assert analyse(ComparisonRecord.model_validate_json(made.model_dump_json())) == analyse(made)


def _slowed(one: CellResult) -> CellResult:
    blocks = tuple(
        block.model_copy(update={"median_step_seconds": 2 * block.median_step_seconds}) for block in one.result.blocks
    )
    return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})


def _disturbed(one: CellResult) -> CellResult:
    """The second block took three times as long, while another program had a core of two."""
    first, second, *rest = one.result.blocks
    slow = second.model_copy(
        update={"median_step_seconds": 3 * second.median_step_seconds, "others_seconds": second.seconds, "cores": 2}
    )
    blocks = (first, slow, *rest)
    return one.model_copy(update={"result": one.result.model_copy(update={"blocks": blocks})})
