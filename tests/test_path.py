"""The path of a setting from the command line to the step: which functions pass it on, and through which layers.

A profile records the stack at the places that use a setting: where it is parsed, checked, written, and read for the
step. A function is on the path if one of its arguments contains the setting. The methods of an object that holds it
count once, because it is not passed between them.
"""

import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from assay.cli.main import app
from assay.config import Run, Spec, loading
from assay.data import Batches
from assay.errors import UsageError
from assay.launch import prepare
from assay.optimizations import Optimization, resolve, stack
from assay.optimizations.sdpa_attention import SdpaAttention
from assay.store.run_folder import RunFolder
from assay.training.stops import Interrupted
from assay.worker import main as worker
from assay.worker.processes.channel import ParentChannel
from support.corpora import TEXT, small_corpus
from support.runs import run_folder

ROOT = Path(__file__).parents[1]
LONGEST, MOST_RETURNS = 12, 2
BATCH, TECHNIQUE = "training.batch_size=6", "sdpa_attention"
HOLDERS = ("run", "spec", "config", "findings")
"""Attributes under which an object holds a run."""


def contains(value: Any, setting: str, depth: int = 2) -> bool:
    """True if a value is the setting as text, a run that has it, or an object or a list that holds one of these."""
    if isinstance(value, str):
        return value == setting
    if isinstance(value, list | tuple):
        return any(contains(one, setting, depth) for one in value)
    if isinstance(value, Run):
        return True
    return depth > 0 and any(contains(getattr(value, name, None), setting, depth - 1) for name in HOLDERS)


def passes_on(frame: FrameType, setting: str) -> bool:
    count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
    return any(contains(frame.f_locals.get(name), setting) for name in frame.f_code.co_varnames[:count])


def name_of(frame: FrameType, setting: str) -> str:
    """Module and function; for a method of an object that holds the run, module and class."""
    holder = frame.f_locals.get("self")
    qualified = frame.f_code.co_qualname
    inside = qualified.partition(".")[0] if holder is not None and contains(holder, setting) else qualified
    return f"{frame.f_globals['__name__']}:{inside}"


@contextmanager
def path_to(setting: str, *users: Callable[..., Any]) -> Iterator[list[str]]:
    """Yield a list that gets the functions on the path, in the order in which the setting reaches them."""
    codes, found = [user.__code__ for user in users], []

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in codes:
            stack, below = [], frame.f_back
            while below is not None:
                if below.f_globals.get("__name__", "").startswith("assay") and passes_on(below, setting):
                    stack.insert(0, name_of(below, setting))
                below = below.f_back
            found.extend(name for name in stack if name not in found)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


def rank(name: str) -> int:
    """Position of a function's layer, counted from the top."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [[room.strip(" ()") for room in line.split("|")] for line in contract["layers"]]
    return next(index for index, rooms in enumerate(layers) if any(name.startswith(room) for room in rooms))


def in_parent(folder: Path, setting: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path in the process of the command line, which ends where it would start the run's own process."""

    def not_started(*arguments: Any) -> None:
        raise UsageError("it is not started")

    (folder / "text.txt").write_text(TEXT)
    monkeypatch.setenv("ASSAY_HOME", str(folder / "home"))
    monkeypatch.setattr("assay.launch.spawn._spawn", not_started)
    # It reads runs of the catalogue where nobody has yet in this process: a setting is not passed on by that.
    monkeypatch.setattr("assay.api.training._like", lambda run: ())
    words = ["train", f"data.path={folder / 'text.txt'}", "data.tokenizer=char", BATCH, "--with", TECHNIQUE]
    with (
        path_to(setting, loading.validate, prepare.predict, RunFolder.prepare) as path,
        pytest.raises(SystemExit) as end,
    ):
        app(words)
    assert end.value.code == 2
    return path


def in_child(folder: Path, setting: str, user: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path in the run's own process, which is this one here."""
    monkeypatch.setattr(ParentChannel, "stop_on_signals", lambda self: None)

    def interrupted(*arguments: Any) -> None:
        raise Interrupted("the step is built, and nothing more is asked")

    monkeypatch.setattr("assay.worker.session.Session._train", interrupted)
    made = run_folder(folder / "run", small_corpus(folder), {"batch_size": 6}, optimizations=TECHNIQUE)
    requests, _ = os.pipe()
    channel = ParentChannel(made.events_file, os.open(os.devnull, os.O_WRONLY), requests, in_turns=False)
    with path_to(setting, user) as path:
        worker._work(made, channel, None, "import")
    return path


@pytest.mark.parametrize(
    ("setting", "user"),
    [(BATCH, Batches.__init__), (TECHNIQUE, SdpaAttention.apply)],
    ids=["batch_size", "optimization"],
)
def test_few_functions_pass_a_setting_on(
    setting: str, user: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = in_parent(tmp_path, setting, monkeypatch)
    child = in_child(tmp_path, setting, user, monkeypatch)
    assert parent[0] == "assay.cli.train:train"
    assert child[0] == "assay.worker.session:Session"
    path = parent + child
    assert len(path) <= LONGEST, path
    assert sum(rank(after) < rank(before) for before, after in pairwise(path)) <= MOST_RETURNS, path


@pytest.mark.parametrize("process", ["parent", "child"])
def test_each_process_resolves_the_stack_once(process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def counted(spec: Spec) -> Optimization:
        named.append(spec.name)
        return resolve(spec)

    monkeypatch.setattr(stack, "_stacks", {})
    monkeypatch.setattr(stack, "resolve", counted)
    if process == "parent":
        in_parent(tmp_path, TECHNIQUE, monkeypatch)
    else:
        in_child(tmp_path, TECHNIQUE, SdpaAttention.apply, monkeypatch)
    assert named == [TECHNIQUE]
