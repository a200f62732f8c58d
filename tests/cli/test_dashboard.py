"""`assay dashboard`: it prints one link, answers there, and ends at Ctrl-C; refusals are one sentence."""

import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from assay import dashboard
from assay.config import Home
from cli.conftest import Assay


def test_a_missing_extra_is_one_sentence(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    said = assay("dashboard")
    assert said.code == 2
    assert said.err.strip().endswith("install with `pip install 'assay[dashboard]'`")


def test_a_model_that_names_no_function_is_one_sentence(assay: Assay) -> None:
    said = assay("dashboard", "--model", "train.py")
    assert said.code == 2
    assert "'train.py' names no function; write file.py:function" in said.err


def test_it_serves_until_it_is_interrupted(home: Home) -> None:
    command = [sys.executable, "-m", "assay", "dashboard", "--port", "0"]
    environment = {**os.environ, "ASSAY_HOME": str(home.root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        link = child.stdout.readline().strip()
        with urllib.request.urlopen(link, timeout=20) as answer:
            assert b"Nothing has run here yet" in answer.read()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
    assert child.returncode == 0
    assert err.strip() == "Ctrl-C ends the dashboard"


def test_it_loads_no_torch() -> None:
    code = (
        "import sys, pathlib; from assay.dashboard.app import build_app; from starlette.testclient import TestClient;"
        "browser = TestClient(build_app(pathlib.Path(sys.argv[1])), base_url='http://127.0.0.1');"
        "codes = {browser.get(path).status_code for path in "
        "('/', '/runs', '/runs/overlaid', '/studies', '/what-if', '/what-if/model', '/scaling')};"
        "sys.exit('torch' in sys.modules or codes != {200})"
    )
    assert subprocess.run([sys.executable, "-c", code, "/nowhere/at/all"], timeout=60).returncode == 0
