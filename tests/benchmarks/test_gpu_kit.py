"""The kit for a GPU: items are kept one by one, and its parts run on a CPU and on an absent GPU."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Any

import pytest

from support.absent import PYTHON, needs_cuda_build

KIT = Path(__file__).parents[2] / "benchmarks" / "gpu_kit"
NEEDED = ("torch", "numpy", "pydantic", "omegaconf", "typer", "rich")


@pytest.fixture
def few_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Command of a Python that has only the needed packages, those that they require, and no metadata of assay."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in required(NEEDED, set()):
        site = Path(str(distribution(name).locate_file("")))
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(site / top)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return [sys.executable, "-S"]


def required(names: Iterable[str], found: set[str]) -> set[str]:
    """Add installed packages and what they require to `found`, and return it."""
    for name in names:
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            plain = (one for one in needed if "extra ==" not in one)
            required([match[0] for one in plain if (match := re.match(r"[A-Za-z0-9_.-]+", one))], found)
    return found


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(KIT))
    import taking  # type: ignore[import-not-found]

    return taking


def kit(*words: str) -> dict[str, Any]:
    """Items of each part, after the kit ran in a folder."""
    folder = Path(words[words.index("--out") + 1])
    subprocess.run([*words], capture_output=True, text=True)
    return {one.stem: json.loads(one.read_text())["items"] for one in folder.glob("*.json")}


def test_an_item_that_is_there_is_not_taken_again(taking: Any, tmp_path: Path) -> None:
    def fails() -> dict[str, Any]:
        raise ValueError("not today")

    given, limit = taking.Given(True, "", ""), time.monotonic() + 60
    first = taking.Part(lambda given: {"one": lambda: {"value": 1}, "two": fails}, 30.0)
    assert taking.take_all("part", first, given, tmp_path, limit) == 1
    later = taking.Part(lambda given: {"one": lambda: {"value": 2}, "three": lambda: {"value": 3}}, 30.0)
    taking.take_all("part", later, given, tmp_path, limit)
    found = json.loads((tmp_path / "part.json").read_text())["items"]
    assert found == {"one": {"value": 1}, "two": {"failed": "ValueError: not today"}, "three": {"value": 3}}


def test_an_item_that_hangs_or_dies_is_no_end(taking: Any, tmp_path: Path) -> None:
    import os

    items = {"hangs": lambda: time.sleep(60), "dies": lambda: os._exit(3), "works": lambda: {"value": 1}}
    part = taking.Part(lambda given: items, 1.0, beside=2)
    assert taking.take_all("part", part, taking.Given(True, "", ""), tmp_path, time.monotonic() + 60) == 2
    found = json.loads((tmp_path / "part.json").read_text())["items"]
    assert found["hangs"] == {"failed": "out of time"}
    assert found["dies"] == {"failed": "the process died"}
    assert found["works"] == {"value": 1}


def test_time_that_is_over_leaves_items_for_the_next_run(taking: Any, tmp_path: Path) -> None:
    part = taking.Part(lambda given: {"one": lambda: {"value": 1}}, 30.0)
    taking.take_all("part", part, taking.Given(True, "", ""), tmp_path, time.monotonic())
    assert not (tmp_path / "part.json").exists()


def test_few_packages_are_few(few_packages: list[str]) -> None:
    for words, fails in (("pydantic_core, yaml, rich", 0), ("pytest", 1), ("psutil", 1), ("assay", 1)):
        assert subprocess.run([*few_packages, "-c", f"import {words}"], capture_output=True).returncode == fails


def test_the_page_of_the_measured_device_is_that_of_its_data(tmp_path: Path) -> None:
    data, made = KIT.parent / "data" / "h200", tmp_path / "gpu.md"
    subprocess.run([sys.executable, str(KIT / "page.py"), str(data), "--out", str(made)], check=True)
    assert made.read_text() == (KIT.parents[1] / "docs" / "measured" / "gpu.md").read_text()


@pytest.mark.slow
def test_the_kit_runs_on_a_cpu_with_few_packages(
    tmp_path: Path, few_packages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kit(*few_packages, str(KIT), "--tiny", "--out", str(tmp_path / "kit"))
    assert set(found) == {"rates", "peaks", "race", "honest"}
    assert not [one for items in found.values() for one in items.values() if "failed" in one]
    assert all(one["verdict"] for one in found["honest"].values())
    monkeypatch.syspath_prepend(str(KIT))
    subprocess.run([sys.executable, str(KIT / "page.py"), str(tmp_path / "kit"), "--out", str(tmp_path / "gpu.md")])
    assert "6 of 6 honest runs were proven." in (tmp_path / "gpu.md").read_text()


@needs_cuda_build
@pytest.mark.absent
def test_the_kit_runs_on_an_absent_gpu(tmp_path: Path) -> None:
    absent = [sys.executable, "-m", "assay", "absent", "h200", "--"]
    found = kit(*absent, str(PYTHON), str(KIT), "--tiny", "--out", str(tmp_path / "kit"))
    assert not [one for items in found.values() for one in items.values() if "failed" in one]
    assert all(one["requested_peak"] > 0 for one in found["peaks"].values())
