"""Streams of a growing log end with its writer, and with the server."""

import json
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from assay.dashboard.stream import follow, message
from assay.dashboard.tail import Tail


def served(log: Path, writer_ended: bool) -> Starlette:
    """An application that streams a log of one line."""
    log.write_text(json.dumps({"event": "checkpoint", "step": 1}) + "\n")
    tail = Tail(log, lambda events: [{"steps": [one.step for one in events]}])

    def events(request: Request) -> Response:
        return follow(request, tail, lambda: writer_ended)

    app = Starlette(routes=[Route("/events", events)])
    app.state.memory = SimpleNamespace(ending=Event())
    return app


def test_a_stream_ends_with_the_writer_of_its_log(tmp_path: Path) -> None:
    said = TestClient(served(tmp_path / "log", writer_ended=True)).get("/events").text
    assert '[{"steps":[1]}]' in said
    assert "event: over" in said


def test_a_stream_ends_with_the_server(tmp_path: Path) -> None:
    """Ctrl-C waits for open streams, and a stream that never ends would leave a traceback."""
    app = served(tmp_path / "log", writer_ended=False)
    Timer(0.2, app.state.memory.ending.set).start()
    said = TestClient(app).get("/events").text
    assert '[{"steps":[1]}]' in said
    assert "event: over" not in said


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -float("inf")])
def test_a_message_is_json_whatever_its_figures(figure: float) -> None:
    said = message([{"loss": figure}], 3).partition("data: ")[2]
    assert json.loads(said, parse_constant=pytest.fail) == [{"loss": None}]


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e308", "1e999", '"NaN"'])
def test_a_line_with_a_figure_that_cannot_be_reaches_no_browser(figure: str, tmp_path: Path) -> None:
    app = served(tmp_path / "log", writer_ended=True)
    with (tmp_path / "log").open("a") as log:
        log.write(f'{{"event": "step", "step": 3, "loss": 2.0, "seconds": 1.0, "tokens": 4, "loss_scale": {figure}}}\n')
    said = TestClient(app).get("/events").text
    assert "[1]" in said
    assert "3" not in said.partition("data: ")[2].partition("\n")[0]
