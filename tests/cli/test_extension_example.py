"""The complete extension in `examples/extension` works: one file of each kind, found, and used in one study."""

from pathlib import Path

import numpy as np
import pytest

from assay.analysis.metrics import metrics
from assay.analysis.metrics.base import check_own
from assay.config import Home, Run, Spec
from assay.executors import executors
from assay.optimizations import catalogue, resolve_run
from assay.scaling.laws import form_named
from assay.studies.kinds import kinds
from support.children import Fake
from support.runs import run_with
from support.steps import traced

from .conftest import TINY, Assay

FOLDER = Path(__file__).parents[2] / "examples" / "extension"
KINDS = ("optimizations", "studies", "executors", "metrics", "scaling")


@pytest.fixture(autouse=True)
def _extended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(FOLDER))


def test_there_is_one_file_of_each_kind_and_each_is_found() -> None:
    assert sorted(KINDS) == sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    assert all(len(list((FOLDER / kind).glob("*.py"))) == 1 for kind in KINDS)
    assert "halved_rate" in catalogue()
    assert kinds()["ends"].kind == "ends"
    assert executors()["backwards"].name == "backwards"
    assert "tokens_per_parameter" in metrics()
    check_own(resolve_run(Run().with_vocabulary(256)))


def test_its_technique_is_proven_and_its_proof_can_fail() -> None:
    run = run_with(Spec(name="halved_rate"))
    trace = traced(run)
    one = catalogue()["halved_rate"]()
    assert one.verify(trace, run).verdict
    groups = tuple(group.model_copy(update={"settings": {"lr": 1.0}}) for group in trace.optimizer.groups)
    changed = trace.model_copy(update={"optimizer": trace.optimizer.model_copy(update={"groups": groups})})
    assert not one.verify(changed, run).verdict


def test_its_law_has_the_slopes_that_differences_have() -> None:
    from assay.scaling.points import planned_points

    law, points = form_named("tokens-only"), planned_points(tokens=np.array([1e8, 1e9]), parameters=1e6)
    values = np.array([[30.0, 0.1]])
    losses, slopes = law.log_losses(values, points)
    for place in range(2):
        near = values.copy()
        near[0, place] += 1e-6
        difference = (law.log_losses(near, points)[0] - losses) / 1e-6
        assert slopes[..., place] == pytest.approx(difference, rel=1e-4)


def test_its_study_runs_with_its_executor_and_has_its_column(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, home: Home
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        f'kind: ends\nrates: ["1e-3", "3e-4", "1e-4"]\noverrides: [{", ".join((corpus, *TINY))}]\nseeds: 1\n'
        "expects: [{row: 'training.learning_rate=1e-4', metric: tensors_peak_bytes, change: lower, size: 0.5}]\n"
    )
    said = assay("study", "run", str(path), "--executor", "backwards", "--fail-on", "refuted", "--json")
    assert '"tokens_per_parameter"' in said.out
    assert said.code == 5
    assert "refuted: rate 1e-4: tensors, peak lower by 50 % or more" in said.err
    assert assay("study", "show", "last", "--json").code == 0
    assert assay("study", "show", "last", "--json", "--fail-on", "refuted").code == 5
    assert assay("study", "show", "last", "--fail-on", "unclear").code == 2
