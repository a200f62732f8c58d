"""Critical batch sizes: identities, published figures, a fit that recovers planted values, and mistakes."""

from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.report import view
from assay.scaling.batch import (
    Batching,
    Critical,
    KnownSteps,
    around,
    at_loss,
    fit,
    from_noise,
    kaplan,
    kaplan_loss,
    planned_run,
    rows,
)

CRITICAL = Critical(512.0, "sequences", "a test")


@pytest.mark.parametrize("size", [1.0, 64.0, 512.0, 1e6])
def test_steps_and_examples_are_on_the_hyperbola(size: float) -> None:
    steps, examples = CRITICAL.steps(size), CRITICAL.examples(size)
    assert (steps - 1) * (examples - 1) == pytest.approx(1.0)
    least_examples = 512.0 * 3_000  # B_crit = E_min/S_min
    assert size * 3_000 * steps == pytest.approx(least_examples * examples)


def test_the_critical_batch_takes_twice_the_least_of_both() -> None:
    assert (CRITICAL.steps(512), CRITICAL.examples(512)) == (2.0, 2.0)


def test_counts_follow_from_a_present_run() -> None:
    present = KnownSteps(batch=64, steps=20_000, step_seconds=0.5)
    same, twice = rows(CRITICAL, [64, 128], present)
    assert same.step_count == pytest.approx(20_000)
    assert same.seconds == same.seconds_in_proportion == pytest.approx(10_000)
    assert twice.step_count == pytest.approx(20_000 * (1 + 4) / (1 + 8))
    assert twice.example_count == pytest.approx(128 * twice.step_count)
    assert twice.seconds_in_proportion == pytest.approx(twice.step_count * 0.5)
    assert twice.seconds == pytest.approx(2 * twice.seconds_in_proportion)


def test_the_published_law_of_kaplan() -> None:
    """Their figure 10: 2.1e8 · L^−4.8 tokens, about a million at a loss of 3."""
    assert kaplan(1.0) == 2.1e8
    assert kaplan(3.0) == pytest.approx(2.1e8 * 3.0**-4.8, rel=0.06)
    assert 1e6 < at_loss(3.0).size < 1.3e6


def test_the_loss_of_a_planned_run_is_a_fixed_point() -> None:
    plan = planned_run(kaplan_loss, 1e9, 1e5, 5e5)
    critical = kaplan(plan.loss)
    assert plan.loss == pytest.approx((6.5e13 / 1e9) ** 0.077 + (2.1e3 / plan.least_steps) ** 0.76)
    assert plan.least_steps == pytest.approx(1e5 / (1 + critical / 5e5))
    assert plan.least_flops == pytest.approx(6 * 1e9 * plan.least_steps * critical)  # C_min = 6·N·B_crit·S_min
    assert plan.flops == 6 * 1e9 * 1e5 * 5e5


def test_compute_at_the_critical_batch_is_twice_the_least() -> None:
    """Kaplan et al., section 5: C_min = C/2 at B = B_crit."""
    loss = planned_run(kaplan_loss, 1e9, 1e5, 2e6).loss
    for _ in range(60):
        loss = planned_run(kaplan_loss, 1e9, 1e5, kaplan(loss)).loss
    plan = planned_run(kaplan_loss, 1e9, 1e5, kaplan(loss))
    assert plan.least_flops == pytest.approx(plan.flops / 2, rel=1e-6)


def test_a_noise_scale_within_its_error_is_refused() -> None:
    with pytest.raises(UsageError, match="measure it with more micro-batches"):
        scaling.batch(noise=50, noise_error=50)


@pytest.mark.parametrize(
    ("steps", "says"), [([1000, 1000, 1000], "above the critical one"), ([800, 400, 200], "far below the critical one")]
)
def test_batch_sizes_on_one_side_of_the_critical_one_are_refused(steps: list[int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        fit([8, 16, 32], steps)


@pytest.mark.parametrize("size", [30.0, 700.0])
def test_a_fit_recovers_planted_values(size: float) -> None:
    batches = [8, 32, 128, 512, 2048]
    found = fit(batches, [1_000 * (1 + size / batch) for batch in batches])
    assert found.size == pytest.approx(size, rel=1e-4)
    assert found.least_steps == pytest.approx(1_000, rel=1e-4)


def test_intervals_of_fits_cover_the_truth_at_their_rate() -> None:
    chance, covered, batches = np.random.default_rng(0), 0, np.array([8, 32, 128, 512, 2048.0])
    for _ in range(200):
        found = fit(list(batches), list(1_000 * (1 + 100 / batches) * np.exp(chance.normal(0, 0.05, 5))))
        assert found.interval is not None
        covered += found.interval[0] <= 100 <= found.interval[1]
    assert covered / 200 == pytest.approx(0.95, abs=0.04)


def test_batches_on_one_side_do_not_identify_it(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    rows_ = [f"{batch},{1_000 * (1 + 1e5 / batch) * noise:.0f}" for batch, noise in ((8, 1.02), (16, 0.97), (32, 1.01))]
    path.write_text("\n".join(["batch,steps", *rows_]))
    found = scaling.batch(measured=path)
    assert not found.to_dict()["critical"]["identified"]
    assert any("do not identify" in str(block) for block in found.report())


def test_the_interval_of_a_noise_scale_is_positive() -> None:
    found = from_noise(100.0, 60.0, "sequences", "a test")
    assert found.interval is not None
    low, high = found.interval
    assert 0 < low < 100 < high
    assert low * high == pytest.approx(1e4)


def test_listed_batches_are_around_it() -> None:
    assert around(CRITICAL) == tuple(2.0**power for power in range(5, 14))
    assert around(Critical(1e-3, "sequences", "a test")) == (1.0,)
    assert around(Critical(3.0, "sequences", "a test"))[0] == 1.0


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf"), 1e-300])
@pytest.mark.parametrize("name", ["noise", "loss", "parameters", "steps", "batch_size", "step_seconds"])
def test_an_impossible_number_is_a_sentence(name: str, number: float) -> None:
    given = {"noise": 100.0, "steps": 1e4, "batch_size": 64.0}
    if name in ("loss", "parameters"):
        del given["noise"]
    with pytest.raises(UsageError, match="is not possible; give a number from"):
        scaling.batch(**(given | {name: number}))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "follows from exactly one of"),
        ({"noise": 10, "loss": 3}, "follows from exactly one of"),
        ({"loss": 3, "noise_error": 1}, "that of a noise scale; give both"),
        ({"noise": 10, "steps": 100}, "both steps and a batch size"),
        ({"noise": 10, "step_seconds": 1}, "both steps and a batch size"),
        ({"parameters": 1e9, "steps": 100}, "both steps and a batch size"),
        ({"parameters": 1e9}, "give all three"),
        ({"noise": 10, "batches": [0]}, "batch size 0 is not possible"),
        ({"noise": 10, "batches": [float("nan")]}, "batch size nan is not possible"),
    ],
)
def test_a_mistake_is_a_sentence(given: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scaling.batch(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no batch sizes and steps"),
        ("batch,loss\n1,2", "needs the columns batch and steps"),
        ("batch,steps\n1,2\n2,1", "has 2 batch sizes; a critical batch size needs 3"),
        ("batch,steps\n1,2\n2,x\n3,1", "line 3: the column steps has .x.; write a number"),
        ("batch,steps\n1,2\n2\n3,1", "line 3: the column steps is empty; fill it, or leave the row"),
        ("batch,steps\n1,2\n0,3\n3,1", "line 3: batch=0 is not possible"),
        ("batch,steps\n1,nan\n2,3\n3,1", "line 2: steps=nan is not possible"),
    ],
)
def test_a_faulty_file_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "steps.csv").write_text(text)
    with pytest.raises(UsageError, match=says):
        scaling.batch(measured=tmp_path / "steps.csv")
    with pytest.raises(UsageError, match="cannot be read"):
        scaling.batch(measured=tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("batches", "side"), [((8, 16, 32), "below"), ((2048, 4096, 8192), "above"), ((64, 4096), None)]
)
def test_measured_batches_on_one_side_of_the_critical_one_say_so(batches: tuple[int, ...], side: str | None) -> None:
    sizes = [*batches, batches[0] * 1.5]
    found = fit(sizes, [100 * (1 + 512 / size) for size in sizes])
    assert found.one_sided == side
    text = " ".join(map(str, view(Batching(found, ())).blocks()))
    assert ("All measured batch sizes are" in text) == (side is not None)
