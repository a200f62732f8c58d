"""A user's metric is tried on a record before cells run, and only what is its own fault is refused."""

from pathlib import Path

import pytest

from assay.analysis.metrics import metrics
from assay.analysis.metrics.registry import check_own
from assay.analysis.metrics.trial import try_metrics
from assay.api.study import run as run_study
from assay.config import Run
from assay.errors import UsageError
from assay.optimizations import resolved

CONFIG = resolved(Run().with_vocabulary(256))
METRIC = """
from assay.analysis.metrics import Metric

MINE = Metric(
    name="mine", title="mine", unit="count", better="lower", kind="exact", meaning="A sentence.", of=lambda run: {of}
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "metrics").mkdir()
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path))
    return tmp_path / "metrics"


def test_the_metrics_of_the_package_pass() -> None:
    try_metrics(metrics(), CONFIG)


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("run.parametres", r"mine\.py, line 5: the metric 'mine' fails on any run: AttributeError: .*'parametres'"),
        ("nowhere(run)", "NameError: name 'nowhere' is not defined"),
        ("run.tokens + run.run", "TypeError"),
        ("run.run", "returns '1'; return a number"),
        ("float('inf')", "returns inf; return a number"),
    ],
)
def test_a_faulty_metric_is_refused_before_anything_runs(folder: Path, of: str, says: str) -> None:
    (folder / "mine.py").write_text(METRIC.format(of=of))
    with pytest.raises(UsageError, match=says):
        check_own(CONFIG)
    with pytest.raises(UsageError, match=says):
        run_study(folder / "there-is-no-such-study.yaml")


@pytest.mark.parametrize("of", ["run.extra['mine']", "1 / (run.steps - 1)", "run.memory.tensors_peak_bytes", "None"])
def test_what_another_run_may_have_is_no_fault(folder: Path, of: str) -> None:
    (folder / "mine.py").write_text(METRIC.format(of=of))
    check_own(CONFIG)
