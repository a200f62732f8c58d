"""The ledger's peaks: those of 53 steps on an H200, and those of traces of drawn runs, which one process forks for."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.fake_library import shared_library

ROOT = Path(__file__).parents[2]
MANY = 40
"""Drawn runs."""


def test_steps_of_an_h200_are_predicted_within_their_bounds() -> None:
    from ledger_peaks import is_apart, measured_rows  # type: ignore[import-not-found]

    rows = measured_rows()
    assert len(rows) == 53
    assert [row for row in rows if not row.within] == []
    assert all(abs(row.error) <= 32 for row in rows if not is_apart(row))


def test_drawn_steps_of_an_h200_are_predicted_for_its_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of them normalize queries and keys, which torch 2.11 composes under autocast and later ones do not."""
    from assay.estimator import estimate
    from ledger_draws import MACHINE, drawn  # type: ignore[import-not-found]

    file = json.loads((ROOT / "benchmarks/data/h200/peaks.json").read_text())
    for place in ("estimator.estimate", "optimizations.selective_checkpointing"):  # which older ones cannot have
        monkeypatch.setattr(
            import_module(f"assay.{place}"), "torch_version", lambda: file["about"]["versions"]["torch"]
        )
    steps = {int(number): one["requested_peak"] for number, one in file["items"].items()}
    assert len(steps) == 17
    away = {n: estimate(drawn(n), MACHINE).requested_bytes.high - peak for n, peak in steps.items()}
    assert max(away.values()) <= 192
    assert min(away.values()) >= 0
    monkeypatch.setattr(import_module("assay.estimator.estimate"), "torch_version", lambda: "2.12.0")
    assert estimate(drawn(11), MACHINE).requested_bytes.high < steps[11] - 3_000_000


@pytest.mark.slow
def test_drawn_runs_are_predicted_as_they_are_traced(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from assay.config.run import Spec
    from ledger_draws import drawn, drawn_mixture  # type: ignore[import-not-found]
    from ledger_peaks import as_rows, drawn_rows

    runs = {number: drawn(number) for number in range(MANY)} | {-1: drawn_mixture(0), -2: drawn_mixture(3)}
    # Its backward recomputes a block that ends with an RMS norm; without that, the step peaks in a cast of its forward.
    runs[-3] = recomputed = drawn(162)
    casting = [one for one in recomputed.optimizations if one.name in ("bf16_mixed", "gradient_accumulation")]
    runs[-4] = recomputed.model_copy(update={"optimizations": tuple(casting)})
    # Attention that is not fused returns its result in 16 bits, while its frame still has the wide ones.
    wide = [Spec.parse(one) for one in ("sdpa_attention:backend=math", "selective_checkpointing:policy=matmuls")]
    runs[-5] = drawn(30).model_copy(update={"optimizations": (*wide, Spec(name="bf16_mixed"))})
    shared_library(tmp_path_factory, tmp_path / "home")
    listed = tmp_path / "rows.jsonl"
    listed.write_text("".join(f"{json.dumps(row)}\n" for row in as_rows(runs)), encoding="utf-8")
    variables = dict(os.environ) | {"PYTHONPATH": str(ROOT / "src"), "ASSAY_HOME": str(tmp_path / "home")}
    command = [sys.executable, str(ROOT / "benchmarks" / "trace_steps.py"), str(listed)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    rows = drawn_rows(runs, [json.loads(line) for line in done.stdout.splitlines()])
    assert [row for row in rows if row.found is None or not row.within] == []


def test_draws_repeat_and_differ() -> None:
    from ledger_draws import drawn, drawn_mixture, drawn_with

    assert drawn(3) == drawn(3)
    assert len({drawn(number).model_dump_json() for number in range(12)}) == 12
    assert drawn_mixture(0).model.n_expert
    assert "compile" in {one.name for one in drawn_with("compile", 0).optimizations}


def test_an_error_beyond_its_bound_is_told_in_the_page_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ledger_peaks

    for error, code in ((192, 0), (193, 1)):
        row = ledger_peaks.Row("one", 10**6 + error, 10**6, 192)
        monkeypatch.setattr(ledger_peaks, "measured_rows", lambda only, row=row: [row])
        assert ledger_peaks.main([]) == code
    assert "Beyond their bounds" in capsys.readouterr().out
