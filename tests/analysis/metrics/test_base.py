"""The folder is the registry: a file dropped into one is all that a new metric takes."""

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import assay
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.base import check_own, try_metrics
from assay.api.study import run as run_study
from assay.config import Run, validate
from assay.errors import UsageError
from assay.optimizations import resolve_run
from assay.records.prediction import Memory, Predicted
from assay.report.comparison.row_table import print_comparison
from assay.report.comparison.wording import columns
from assay.report.kit.view import render
from support.comparisons import TREATMENTS, record

PLAIN: dict[str, Any] = {
    "name": "parameters",
    "title": "parameters",
    "unit": "count",
    "better": "lower",
    "kind": "exact",
    "meaning": "Parameters of the model.",
    "of": lambda result: result.parameters,
}


def test_it_is_shown_and_not_predicted_unless_it_says_so() -> None:
    metric = Metric(**PLAIN)
    assert metric.shown
    assert not metric.predicted


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit": "secs"}, "has unit='secs'; choose bytes or seconds or per_second or nats or count or ratio"),
        ({"better": "less"}, "has better='less'; choose lower or higher"),
        ({"kind": "noisy"}, "has kind='noisy'; choose exact or timed or loss"),
        ({"kind": "timed"}, "is of the kind 'timed' and has no function 'of_block'; define it"),
        ({"of": None}, "is of the kind 'exact' and has no function 'of'; define it"),
        ({"predicted": True}, "has predicted=True, but the estimator does not predict it"),
    ],
)
def test_a_fault_is_one_sentence_with_the_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=r"^the metric 'parameters' ") as raised:
        Metric(**{**PLAIN, **change})
    assert says in str(raised.value)


BUILT_IN = (
    "tensors_peak_bytes",
    "reserved_peak_bytes",
    "process_peak_bytes",
    "step_seconds",
    "tokens_per_second",
    "val_loss",
    "loss_spread",
    "train_loss",
    "sent_bytes",
    "final_norm_gradient_rms",
    "final_norm_weight_rms",
    "block_gradient_ratio",
    "gradient_cosine",
    "gradient_noise_scale",
)

TOYS = '''
"""Two metrics of a user's."""

from assay.analysis.metrics import Metric

PARAMETERS = Metric(
    name="parameters", title="parameters", unit="count", better="lower", kind="exact",
    meaning="Parameters of the model, counted once.", of=lambda result: result.parameters,
)
TOKENS = Metric(
    name="block_tokens", title="tokens of a block", unit="count", better="higher", kind="timed",
    meaning="Tokens that one timed block trains on.", of_block=lambda block: block.tokens,
)
'''

RATE = """
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import STEP_SECONDS

RATE = Metric(
    name="sequences_per_second", title="sequences/s", unit="per_second", better="higher", kind="timed", meaning="…",
    of_block=lambda block: block.tokens / 64 / block.seconds, per_step=lambda run: run.sequences_per_step,
)
HEAP = Metric(
    name="heap_peak_bytes", title="heap, peak", unit="bytes", better="lower", kind="exact", meaning="…",
    of=lambda result: result.memory.heap_peak_bytes, predicted=True, shown=False,
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's metrics, still empty."""
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path))
    (tmp_path / "metrics").mkdir()
    return tmp_path / "metrics"


@pytest.fixture
def toys(folder: Path) -> Comparison:
    (folder / "toys.py").write_text(TOYS)
    return analyse(record())


def printed(comparison: Comparison, width: int | None) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width or 80, force_terminal=width is not None, color_system=None)
    print_comparison(comparison, console)
    return stream.getvalue()


def test_the_packages_own_are_first_and_in_their_order() -> None:
    assert tuple(metrics()) == BUILT_IN
    assert [metric.name for metric in columns(resolve_run(validate({})))] == [BUILT_IN[at] for at in (0, 2, 3, 4, 5)]
    assert [name for name, metric in metrics().items() if metric.predicted] == [BUILT_IN[at] for at in (0, 1, 2, 3)]


def test_agreement_of_gradients_is_a_column_where_runs_compare_them() -> None:
    asked = columns(resolve_run(validate({"training": {"gradient_probe": 4}})))
    assert [metric.name for metric in asked][-2:] == ["gradient_cosine", "gradient_noise_scale"]
    assert asked[:-2] == columns(resolve_run(validate({})))


def test_metrics_of_a_folder_follow_by_name(folder: Path) -> None:
    (folder / "toys.py").write_text(TOYS)
    (folder / "a_later_name.py").write_text(TOYS.replace("parameters", "zeal").replace("block_tokens", "calls"))
    assert tuple(metrics()) == (*BUILT_IN, "block_tokens", "calls", "parameters", "zeal")


def test_they_are_in_json(toys: Comparison) -> None:
    (row, *_), baseline = toys.to_json()["rows"], toys.to_json()["baseline"]
    assert baseline["metrics"]["parameters"] == row["metrics"]["parameters"] == 820_000
    assert row["metrics"]["block_tokens"] == pytest.approx(15360)
    assert row["change"]["parameters"] == 0
    assert row["change"]["block_tokens"] == pytest.approx(0)
    assert row["interval"]["block_tokens"] == pytest.approx([0, 0])
    assert row["verdict"]["parameters"] == "exactly equal"
    assert row["distinguishable"]["block_tokens"] is False


def test_they_are_in_the_frame(toys: Comparison) -> None:
    frame = toys.to_frame()
    assert set(frame["parameters"]) == {820_000.0}
    for name in ("parameters", "block_tokens"):
        assert {f"{name}_change", f"{name}_low", f"{name}_high", f"{name}_verdict"} <= set(frame.columns)
        assert f"predicted_{name}" not in frame.columns
    assert math.isnan(frame["parameters_low"].iloc[2])


@pytest.mark.parametrize("width", [60, 80, 120, 155, 156, 200, None])
def test_they_are_in_the_printed_table(toys: Comparison, width: int | None) -> None:
    text = printed(toys, width)
    for piece in ("parameters", "820k", "exactly equal", "tokens of a block ", "15.4k", "2.4100 2.4160"):
        assert piece in text
    assert "…" not in text
    if width is not None:
        assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert ("─" in text) == (width is not None and width >= 156)


def test_they_are_on_the_page(toys: Comparison) -> None:
    text = render(toys)
    for piece in ('<th scope="col">parameters</th>', '<th scope="col">tokens of a block</th>', "820k", "15.4k"):
        assert piece in text
    assert "<dt>parameters</dt><dd>Parameters of the model, counted once.</dd>" in text
    assert "<dt>tokens of a block</dt><dd>Tokens that one timed block trains on.</dd>" in text


def test_they_are_gone_without_the_folder(toys: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS")
    assert tuple(metrics()) == BUILT_IN
    assert "parameters" not in analyse(record()).to_json()["baseline"]["metrics"]


def test_a_rate_is_an_amount_per_step_and_changes_as_the_step_time(folder: Path) -> None:
    (folder / "rate.py").write_text(RATE)
    comparison = analyse(record(seeds=3))
    row = comparison.rows[0]
    sequences = comparison.record.cells[0].cell.run.sequences_per_step
    step = row.metrics["step_seconds"]
    assert isinstance(step, float)
    assert row.metrics["sequences_per_second"] == sequences / step
    assert row.predicted_change["sequences_per_second"] == row.predicted_change["tokens_per_second"]
    smallest = next(line for line in printed(comparison, None).splitlines() if line.startswith("Smallest change"))
    assert "step time" in smallest
    assert "sequences/s" not in smallest


def test_a_predicted_one_has_its_prediction_and_a_hidden_one_no_column(folder: Path) -> None:
    (folder / "rate.py").write_text(RATE)
    changes = {
        name: {"memory": Memory(heap_peak_bytes=one), "predicted": Predicted(heap_peak_bytes=10 * one)}
        for name, one in (("baseline", 400), (TREATMENTS[0], 100))
    }
    comparison = analyse(record(changes=changes, treatments=TREATMENTS[:1]))
    (row,) = comparison.rows
    assert row.effects["heap_peak_bytes"].change == -0.75
    assert row.predicted_change["heap_peak_bytes"] == -0.75
    assert comparison.to_frame()["predicted_heap_peak_bytes"].iloc[2] == 1000
    assert "heap, peak" not in printed(comparison, None) + render(comparison)


def test_a_metric_that_a_file_imports_is_none_of_its_own(folder: Path) -> None:
    (folder / "rate.py").write_text(RATE)
    assert tuple(metrics()) == (*BUILT_IN, "heap_peak_bytes", "sequences_per_second")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('"""Nothing."""', "toys.py defines no metric; define an assay.analysis.metrics.Metric in it"),
        ("from assay.analysis.metrics.standard import STEP_SECONDS", "toys.py defines no metric"),
        (TOYS.replace("block_tokens", "val_loss"), "toys.py defines the metric 'val_loss', which exists"),
        (TOYS.replace("block_tokens", "parameters"), "toys.py defines the metric 'parameters', which exists"),
        (TOYS.replace('unit="count"', 'unit="pieces"'), "toys.py cannot be imported .* has unit='pieces'; choose "),
        ("import nothing_of_this_name", "toys.py cannot be imported .ModuleNotFoundError"),
    ],
)
def test_a_faulty_file_is_one_sentence_before_anything_runs(folder: Path, tmp_path: Path, text: str, says: str) -> None:
    (folder / "toys.py").write_text(text)
    with pytest.raises(UsageError, match=says):
        assay.compare("demo", treatments=["sdpa_attention"], home=tmp_path / "home")
    assert not (tmp_path / "home").exists()


CONFIG = resolve_run(Run().with_vocabulary(256))
METRIC = """
from assay.analysis.metrics import Metric

MINE = Metric(
    name="mine", title="mine", unit="count", better="lower", kind="exact", meaning="A sentence.", of=lambda run: {of}
)
"""


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


@pytest.mark.parametrize(
    "of", ["run.proof.counters['mine']", "1 / (run.steps - 1)", "run.memory.tensors_peak_bytes", "None"]
)
def test_a_key_that_another_run_may_have_is_no_fault(folder: Path, of: str) -> None:
    (folder / "mine.py").write_text(METRIC.format(of=of))
    check_own(CONFIG)
