"""Models of the user's own: only those that the command line names are called, in a process, one at a time."""

import threading
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from assay.config import Home
from assay.dashboard.app import build_app
from assay.dashboard.whatif import own_models
from assay.dashboard.whatif.own_models import OwnAnswer, OwnModels, OwnQuestion, check_models, follow_step, read_own
from assay.errors import UsageError

MODEL = """
import torch
from pathlib import Path


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Embedding(256, 256)

    def forward(self, inputs, targets):
        return torch.nn.functional.cross_entropy(self.inner(inputs).flatten(0, 1), targets.flatten())


def build():
    return Tiny()


def hostile():
    Path("called").touch()
    return Tiny()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def served(home: Home, *models: str) -> TestClient:
    return TestClient(build_app(home.root, models=models), base_url="http://127.0.0.1")


def settled(browser: TestClient, path: str, seconds: float = 120.0) -> str:
    """Ask until the answer is known."""
    end = time.monotonic() + seconds
    while 'data-state="searching"' in (text := browser.get(path).text):
        assert time.monotonic() < end
        time.sleep(0.1)
    return text


@pytest.mark.usefixtures("forked")
def test_a_named_model_is_answered_with_a_sentence(home: Home, folder: Path) -> None:
    browser = served(home, "mine.py:build")
    text = settled(browser, "/what-if/model?part=answer&model=mine.py:build&batch=4")
    assert "It fits this machine" in text
    assert "How long a step takes is not known." in text
    assert "assay estimate mine.py:build training.batch_size=4 --trace" in text
    assert "mine.py:build" in browser.get("/what-if").text


@pytest.mark.parametrize("model", ["mine.py:hostile", "./mine.py:build", "mine:build", "/etc/passwd.py:f", "os:getcwd"])
def test_no_request_names_code(model: str, home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_models, "follow_step", lambda question: pytest.fail("a function was called"))
    browser = served(home, "mine.py:build")
    assert "is not one of the models" in browser.get("/what-if/model", params={"model": model}).text
    assert "no model of yours is named" in served(home).get("/what-if/model", params={"model": model}).text
    assert not (folder / "called").exists()


@pytest.mark.parametrize(("site", "asks"), [("cross-site", False), ("same-site", False), ("same-origin", True)])
def test_a_page_of_another_site_starts_nothing(
    site: str, asks: bool, home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = threading.Event()
    monkeypatch.setattr(own_models, "follow_step", lambda question: called.set() or OwnAnswer("found", "It fits."))
    text = served(home, "mine.py:build").get("/what-if/model", headers={"sec-fetch-site": site}).text
    assert ("another page asked this" in text) is not asks
    assert called.wait(5.0 if asks else 0.2) is asks


def test_an_absent_gpu_is_asked_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(*given: object, **options: object) -> None:
        asked.append((given, options))
        raise UsageError("it has no backward")

    monkeypatch.setattr(own_models, "gpu_peak", refuse)
    question = OwnQuestion("mine.py:build", "h100", 8)
    with pytest.raises(UsageError, match="no backward"):
        follow_step(question)
    assert asked == [(("mine.py:build", "training.batch_size=8"), {"device": "h100"})]
    assert question.commands[0][1] == "assay estimate mine.py:build training.batch_size=8 --device h100"


def test_an_answer_is_kept_until_the_file_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[OwnQuestion] = []

    def follow(question: OwnQuestion) -> OwnAnswer:
        calls.append(question)
        raise UsageError("it has no parameters")

    monkeypatch.setattr(own_models, "follow_step", follow)
    models, question = OwnModels(), OwnQuestion("mine.py:build")

    def answered() -> OwnAnswer:
        while (found := models.ask(question)).state == "searching":
            time.sleep(0.01)
        return found

    assert answered() == answered() == OwnAnswer("refused", "it has no parameters")
    assert len(calls) == 1
    (folder / "mine.py").write_text(f"{MODEL}\n")
    answered()
    assert len(calls) == 2


@pytest.mark.parametrize("query", [{"batch": "0"}, {"batch": "²"}, {"batch": "99999"}, {"device": "nowhere"}])
def test_an_impossible_question_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_own(query, ("mine.py:build",))


def test_the_command_line_names_functions_of_files_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").touch()
    with pytest.raises(UsageError, match=r"there is no file 'missing\.py'"):
        check_models(["a.py:f", "missing.py:f"])
    assert check_models(["a.py:f", "a.py:f", "b:g"]) == ("a.py:f", "b:g")
    with pytest.raises(UsageError, match="names no function"):
        check_models(["train.py"])
