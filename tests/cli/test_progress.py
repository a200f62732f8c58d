"""The bar, fed with events by hand, and where there is none."""

import io
from typing import Any

import pytest
from rich.console import Console

from assay.cli.progress import Bar, watcher
from assay.launch.progress import RunLines

RUN = {"event": "run", "run": "r1", "folder": "/f", "steps": 10, "tokens_per_step": 100}


def step(index: int, seconds: float = 0.5, loss: float | None = 2.0) -> dict[str, Any]:
    return {"event": "step", "step": index, "loss": loss, "seconds": seconds, "tokens": 100}


def test_the_bar_shows_step_loss_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()

    def drawn(stderr: bool, **how: bool) -> Console:
        assert stderr
        return Console(file=stream, force_terminal=True, width=120, **how)

    monkeypatch.setattr("assay.report.kit.blocks.legible_console", drawn)
    with Bar() as bar:
        bar({"event": "prepare", "message": "tokenizing", "fraction": 0.5})
        bar(RUN)
        bar({"event": "phase", "name": "first_step"})
        bar(step(6))
        bar._progress.refresh()
        bar({"event": "evaluation", "step": 7, "loss": 2.5, "perplexity": 12.2, "bits_per_byte": 3.6})
    shown = stream.getvalue()
    assert "first step" in shown
    assert "7/10" in shown
    assert "loss 2.0000" in shown
    assert "500 ms a step, 200 tokens/s" in shown
    assert "after 7 steps: validation loss 2.5000" in shown


def test_a_pipe_gets_lines() -> None:
    assert isinstance(watcher(), RunLines)
