"""The pytest plugin: a fixture that checks a step by its name, and refuses what another process cannot import."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.api import gate
from assay.errors import UsageError
from assay.launch.gate import GateAnswer, StepCheck
from assay.records.gated import LOCK, LockedStep, StepFigures

pytest_plugins = ["pytester"]


def answer(now: int) -> GateAnswer:
    def found(peak: int) -> StepFigures:
        figures = {"peak_bytes": peak, "saved_bytes": 0, "flops": 0, "synchronizations": 0}
        return StepFigures.model_validate(
            {"torch": "2.13.0", "figures": figures, "instant": "update", "parts": {}, "blocks": {}}
        )

    steps = (LockedStep(step="s.py:build", device="cpu", found=found(peak)) for peak in (now, 10))
    return GateAnswer(Path(LOCK), (StepCheck(*steps),))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> list[Any]:
    """What the plugin asks of assay, which answers without following a step; a test in a project of its own."""
    calls: list[Any] = []

    def checked(*given: Any, **options: Any) -> GateAnswer:
        calls.append(("check", *given, options))
        return answer(20 if options["allow"] is None else 10)

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(gate, "gate_check", checked)
    monkeypatch.setattr(gate, "gate_update", lambda *given, **options: calls.append(("update", *given, options)))
    pytester.makepyfile(
        test_memory="""
        def build(): ...
        def test_allowed(assay_gate): assay_gate("steps.py:build", device="h100", allow="1%")
        def test_grown(assay_gate): assay_gate("steps.py:build")
        def test_live(assay_gate): assay_gate(build)
        """
    )
    return calls


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "assay.pytest_plugin", *words)


def test_growth_fails_a_test_and_a_live_function_is_refused(asked: list[Any], pytester: pytest.Pytester) -> None:
    found = run(pytester)
    found.assert_outcomes(passed=1, failed=2)
    found.stdout.fnmatch_lines(["*s.py:build on cpu: grew: peak of tensors*", "*If this growth is intended*"])
    found.stdout.fnmatch_lines(["*imports its function by name; give*in place of build*"])
    options = {"allow": "1%", "strict": False, "lock": None, "folder": pytester.path}
    assert asked[0] == ("check", ["steps.py:build"], ["h100"], options)


def test_the_option_writes_the_lock(asked: list[Any], pytester: pytest.Pytester) -> None:
    run(pytester, "--assay-gate-update").assert_outcomes(passed=2, failed=1)
    assert [one[:3] for one in asked] == [
        ("update", ["steps.py:build"], ["h100"]),
        ("update", ["steps.py:build"], ["cpu"]),
    ]


def test_an_error_is_shown_once(asked: list[Any], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise UsageError("there is no lock")

    monkeypatch.setattr(gate, "gate_check", refused)
    found = run(pytester, "-k", "test_grown")
    found.stdout.fnmatch_lines(["assay: there is no lock"])
    found.stdout.no_fnmatch_line("*another exception*")


def test_importing_the_plugin_loads_neither_torch_nor_pydantic() -> None:
    check = "import assay.pytest_plugin, sys; sys.exit(any(one in sys.modules for one in ('torch', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
