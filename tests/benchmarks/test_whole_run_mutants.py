"""Every mutant of a whole run acts, and changes what its kind is about; a run is judged by its end and its control."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import api
from assay.config import Home, Run
from assay.config.loading import load
from assay.config.run import Spec
from assay.data import Prepared
from assay.optimizations import forget, optimizations_of, resolve, resolve_run, search
from assay.records.status import Status
from assay.step.program import Step
from assay.store.run_folder import RunFolder
from assay.training import queued_step
from assay.training.build import baseline, build
from assay.training.evaluation import EvaluationSample, evaluate
from assay.training.loop import train_step
from support.random_data import RandomData
from support.runs import run_folder
from support.steps import CPU, micro_batches
from support.workers import ended

TINY = ("model.n_layer=2", "model.n_head=2", "model.n_embd=32", "model.vocab_size=256", "device=cpu")
CLIP = "training.gradient_clip=0.1"
"""Gradients of random tokens are small, and one mutant does not clip."""


@pytest.fixture(autouse=True)
def _clock_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the clock that some mutants exchange put back."""
    monkeypatch.setattr(queued_step, "time", queued_step.time)


@pytest.fixture
def kinds() -> Any:
    from mutants.named import KINDS  # type: ignore[import-not-found]

    return KINDS


def tiny(mutant: Any) -> Run:
    """The mutant's run, of a smaller model on random tokens."""
    settings = [one for one in mutant.settings if not one.startswith("model.n_layer")]
    found = load(
        "demo", [*TINY, CLIP, *settings, f"training.steps={mutant.of}"], [resolve(Spec.parse(mutant.technique)).spec()]
    )
    return resolve_run(found)


def built(mutant: Any, run: Run, *, wrong: bool) -> Step:
    """The step of a mutant, or of its control."""
    from mutants.planting import faulty  # type: ignore[import-not-found]

    torch.manual_seed(run.seed)
    program = baseline(run, RandomData(run), CPU)  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(faulty(mutant, program, run) if wrong else program)


def indices(mutant: Any) -> list[int]:
    """Indices of a few steps: correct ones, the first three faulty ones, and the one after these."""
    due = list(mutant.steps[:3])
    return sorted({0, due[0] - 1, *due, due[-1] + 1} - {-1})


def trained(step: Step, mutant: Any) -> list[Any]:
    """Losses, norms and tokens of a few steps, and the weights after them."""
    records = [train_step(step, index) for index in indices(mutant)]
    figures = [(one.loss, one.log_gradient_norm, one.tokens) for one in records]
    return [*figures, *(one.detach().clone().numpy().tobytes() for _, one in step.named_parameters())]


def evaluated(step: Step, mutant: Any) -> list[tuple[float, int]]:
    """Loss and number of targets of evaluations of four windows after a correct step and after faulty ones."""
    found, windows = [], [pair for at in range(4) for pair in step.program.batches(at, (0, 1))]
    for index in (0, mutant.steps[0], mutant.steps[-1] if len(mutant.steps) < 100 else 23):
        train_step(step, index)
        for batches in (4, 20):  # groups of one window, and of two
            one = evaluate(step, lambda: windows, 1.0, index, EvaluationSample(batches))
            found.append((one.loss, one.targets))
    return found


def differs(mutant: Any, seen: Callable[[Step, Any], list[Any]]) -> bool:
    """Whether what is `seen` of a mutant's step differs from its control's."""
    run = tiny(mutant)
    wrong, right = (seen(built(mutant, run, wrong=one), mutant) for one in (True, False))
    return wrong != right


@pytest.mark.parametrize(
    "kind", ["mid-run", *(pytest.param(one, marks=pytest.mark.slow) for one in ("masks", "gradients"))]
)
def test_a_faulty_step_computes_other_values(kinds: Any, kind: str) -> None:
    assert not [one.name for one in kinds[kind] if not differs(one, trained)]


@pytest.mark.slow
def test_a_faulty_evaluation_has_another_loss(kinds: Any) -> None:
    assert not [one.name for one in kinds["evaluation"] if not differs(one, evaluated)]


@pytest.mark.parametrize(
    ("code", "control", "marks", "verdict"),
    [
        (3, 0, 8, "caught"),
        (0, 0, 8, "SILENT"),
        (1, 0, 8, "crashed"),
        (2, 0, 8, "broken"),
        (3, 3, 8, "broken"),
        (0, 0, 0, "broken"),
    ],
)
def test_a_verdict_needs_a_control_that_passes_and_a_fault_that_acts(
    code: int, control: int, marks: int, verdict: str
) -> None:
    from mutants.judging import verdict_of  # type: ignore[import-not-found]
    from mutants.running import Outcome  # type: ignore[import-not-found]

    found = verdict_of(Outcome(code, marks=marks), Outcome(control), cautioned=False, marks=True)
    assert found == verdict


@pytest.mark.usefixtures("forked")
def test_a_planted_fault_acts_in_a_real_run(
    kinds: Any, corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mutants.mutant import MARKS
    from mutants.named import named
    from mutants.planting import NAME, planted

    mutant = named("lion idles")
    planted(mutant, tmp_path)
    monkeypatch.setenv(MARKS, str(tmp_path / "marks"))
    added = search(tmp_path / "optimizations")
    try:
        result = ended(run_folder(tmp_path / "run", corpus, {"steps": 8}, optimizations=NAME))
    finally:
        forget(added)
    assert result.steps == 7  # the watch sees the second faulty update
    marks = [int(one) for one in (tmp_path / "marks").read_text().split()]
    assert marks == [one for one in mutant.steps if one < result.steps]


def test_names_are_distinct_and_each_kind_has_enough(kinds: Any) -> None:
    names = [one.name for mutants in kinds.values() for one in mutants]
    assert len(names) == len(set(names)) >= 100
    assert {kind: len(mutants) for kind, mutants in kinds.items() if len(mutants) < 12} == {}


@pytest.mark.parametrize("kind", ["traces", pytest.param("counters", marks=pytest.mark.slow)])
def test_a_fault_leaves_marks_of_faulty_steps_only(
    kinds: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mutants.mutant import MARKS  # type: ignore[import-not-found]

    for mutant in kinds[kind]:
        monkeypatch.setenv(MARKS, str(tmp_path / mutant.name))
        step = built(mutant, tiny(mutant), wrong=True)
        trained(step, mutant)
        step.program.evaluate(step, micro_batches(step))
        marks = {int(one) for one in (tmp_path / mutant.name).read_text().split()}
        assert marks, mutant.name
        assert marks <= set(mutant.steps), mutant.name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose corpus is prepared once."""
    return Home(tmp_path_factory.mktemp("home"))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("micro-batch lost", Status.WRONG_VALUES),
        ("better from the second window", Status.WRONG_VALUES),
        ("off late", Status.WRONG_VALUES),
        ("recomputes for a trace", Status.NO_EFFECT),
        ("tokens counted twice", Status.WRONG_VALUES),
        ("MLP at first unseen", Status.WRONG_VALUES),
    ],
)
def test_one_of_each_kind_is_caught_through_launcher_processes_and_files(
    kinds: Any, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: Status
) -> None:
    from mutants.mutant import MARKS
    from mutants.named import named
    from mutants.planting import planted

    mutant = named(name)
    treatment = planted(mutant, tmp_path)
    monkeypatch.setenv(MARKS, str(tmp_path / "marks"))
    added = search(tmp_path / "optimizations")
    try:
        found = api.train("demo", *mutant.settings, f"training.steps={mutant.of}", optimizations=treatment, home=home)
    finally:
        forget(added)
    assert found.status is status, found.reason
    kept = RunFolder(home.runs / found.run).result()
    assert kept is not None
    assert (kept.status, kept.reason) == (found.status, found.reason)
