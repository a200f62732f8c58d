"""A real browser before a real dashboard, whose home has two runs and two studies, and which knows a model.

Chromium is that of `ASSAY_CHROMIUM`, of the path, or of playwright's own folder. Without one, or without playwright,
these tests are skipped. With `ASSAY_SCREENSHOTS` each view is also kept as a picture in that folder.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.config.home import Home
from assay.studies.folder import StudyFolder
from support.browsers import FLAGS, LONGEST, TINY, assay, chromium, dashboard
from support.comparisons import record
from support.scaled import scaled_record

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STUDIES = {"study": "20261101-101010-abcde12", "scaling": "20261102-101010-abcde34"}
"""Ids of the studies in the home."""
MODEL = """
import torch


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Embedding(256, 256)

    def forward(self, inputs, targets):
        return torch.nn.functional.cross_entropy(self.inner(inputs).flatten(0, 1), targets.flatten())


def build():
    return Tiny()
"""


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One Chromium for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install 'assay[browser]'")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium is found; install one, or name it with ASSAY_CHROMIUM")
    with api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a dashboard, the ids of the runs and of the studies in its home, and the name of a model."""
    home = Home(tmp_path_factory.mktemp("home"))
    for name, made in (("study", record(seeds=3, name="ladder")), ("scaling", scaled_record())):
        folder = StudyFolder(home.reports / STUDIES[name])
        folder.path.mkdir(parents=True)
        folder.write_record(made.model_copy(update={"id": folder.id}))
    for steps in (30, 10):
        run = assay(home.root, "train", "demo", *TINY, f"training.steps={steps}", "training.warmup_steps=1")
        said, _ = run.communicate(timeout=LONGEST)
        assert run.returncode == 0, said
    first, other = sorted(folder.name for folder in home.runs.iterdir())
    model = f"{tmp_path_factory.mktemp('own') / 'mine.py'}:build"
    Path(model.removesuffix(":build")).write_text(MODEL)
    with dashboard(home.root, "--model", model) as address:
        yield address, {**STUDIES, "run": first, "other": other, "model": model}


Open = Callable[..., "Page"]
Serve = Callable[[Path], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a dashboard of a home and returns its address."""
    with ExitStack() as started:
        yield lambda home: started.enter_context(dashboard(home))


@pytest.fixture
def opened(browser: "Browser", served: tuple[str, dict[str, str]], serve: Serve) -> Iterator[Open]:
    """A function that opens an address, and at the end fails for every message of a browser's console.

    It asks for `serve`, so pages are closed before their dashboard stops: pages ask again every few seconds.
    """
    messages: list[str] = []
    contexts = []

    def open_page(
        path: str, width: int = 1280, scheme: str = "light", address: str = served[0], watched: bool = True
    ) -> "Page":
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * LONGEST)
        if watched:
            page.on("console", lambda one: messages.append(f"{path}: {one.type}: {one.text}"))
            page.on("pageerror", lambda error: messages.append(f"{path}: {error}"))
            page.on("requestfailed", lambda one: messages.append(f"{path}: {one.url} {one.failure}"))
        page.goto(address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    aborted = "net::ERR_ABORTED"  # a newer question, or a page that is left, ends a request
    assert [one for one in messages if aborted not in one] == []
