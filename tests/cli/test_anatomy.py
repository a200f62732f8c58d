"""`assay anatomy`: sums that are the whole, one JSON value, a figure; and one real step in a process of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.launch import anatomy as source
from assay.records.anatomy import Anatomy, Part
from assay.records.evidence import Evidence
from cli.conftest import TINY, Assay
from support.figures import drawn
from support.forked import fork_children
from support.schemas import faults
from support.traces import nest

PARTS = (
    Part(module="blocks.0.mlp.up", phase="forward", operation_class="contraction", count=1, seconds=3e-3, flops=2000,
         bytes=1024),
    Part(module="blocks.1.mlp.up", phase="backward", operation_class="contraction", count=2, seconds=3e-3, flops=4000,
         bytes=2048),
    Part(module="update", phase="update", operation_class="elementwise", count=4, seconds=2e-3, flops=0, bytes=1024),
)  # fmt: skip
FOUND = Anatomy(parts=PARTS, step_seconds=7e-3, watched_seconds=1.1e-2)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken_apart(run: Any, home: Any, progress: Any, **options: Any) -> Anatomy:
        return FOUND

    monkeypatch.setattr(source, "measure_anatomy", taken_apart)


@pytest.mark.usefixtures("measured")
def test_classes_and_modules_in_lines(assay: Assay, home: Home) -> None:
    lines = [line.split("\t") for line in assay("anatomy", "demo").out.splitlines()]
    assert ["contraction", "6.00 ms", "75.0%", "6.00 kFLOP", "100.0%", "3.00 KiB", "75.0%", "3"] in lines
    assert ["all", "8.00 ms", "100.0%", "6.00 kFLOP", "100.0%", "4.00 KiB", "100.0%", "7"] in lines
    assert ["blocks.*.mlp.up", "6.00 ms", "75.0%", "6.00 kFLOP", "100.0%", "3.00 KiB", "75.0%", "3"] in lines
    assert ["update", "2.00 ms", "25.0%", "–", "0.0%", "1.00 KiB", "25.0%", "4"] in lines
    assert lines[0] == ["One step of demo with no optimization"]
    assert "The step took 7.00 ms without instruments and 11.0 ms with them" in lines[-1][0]


@pytest.mark.usefixtures("measured")
def test_a_technique_without_effect_ends_with_its_own_code(
    assay: Assay, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs = (Evidence(optimization="lion", observed="0 of 21 parameters", verdict=False),)
    monkeypatch.setattr(source, "measure_anatomy", lambda *_, **options: FOUND.model_copy(update={"evidence": proofs}))
    said = assay("anatomy", "demo", "training.steps=5", "--with", "lion:learning_rate=1e-5")
    assert said.code == 3
    assert said.out.startswith("One step of demo training.steps=5 with lion:")
    assert "lion: NO EFFECT, 0 of 21 parameters" in said.out


@pytest.mark.usefixtures("measured")
def test_json_is_one_value_with_the_sums(assay: Assay, home: Home) -> None:
    value = assay("anatomy", "demo", "--json").value
    assert value["by_class"]["contraction"]["flops"] == value["whole"]["flops"] == 6000
    assert [part["module"] for part in value["parts"]] == [part.module for part in PARTS]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_a_figure_is_drawn(assay: Assay, home: Home, tmp_path: Path, name: str, begins: bytes) -> None:
    with drawn():
        said = assay("anatomy", "demo", "--figure", str(tmp_path / name))
    assert said.code == 0
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--figure", "a.jpg"), "must end in .png or .svg"),
        (("--figure", "nowhere/a.png"), "there is no folder"),
        (("--perfetto", "a.txt"), "must end in .json or .json.gz"),
        (("--memory-snapshot", "a.json"), "must end in .pickle"),
        (("ranks=2", "oversubscribe=true", "--with", "data_parallel"), "measures the step of one device"),
    ],
)
def test_impossible_arguments_are_a_sentence(assay: Assay, home: Home, arguments: tuple[str, ...], says: str) -> None:
    said = assay("anatomy", *arguments)
    assert said.code == 2
    assert says in said.sentence()


def test_a_real_step(assay: Assay, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 40, encoding="utf-8")
    said = assay("anatomy", *TINY, f"data.path={text}", "device=cpu", "--json")
    assert said.code == 0, said.err
    modules = set(said.value["by_module"])
    assert {"blocks.*.mlp.up", "head.projection", "update"} <= modules
    assert faults("anatomy", said.value) == []
    assert not list(home.runs.iterdir() if home.runs.exists() else ())


def test_a_real_step_as_a_trace(assay: Assay, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40, encoding="utf-8")
    said = assay("anatomy", *TINY, "data.path=text.txt", "device=cpu", "--perfetto", "step.json")
    assert said.code == 0, said.err
    assert said.err.splitlines()[-1] == "trace written to step.json; open it in ui.perfetto.dev"
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {"forward", "backward", "update"} <= {one["name"] for one in events if one["ph"] == "X"}
    assert nest([one for one in events if one["ph"] == "X"])
    assert all(one["args"]["bytes alive"] > 0 for one in events if one["ph"] == "C")


def test_a_memory_snapshot_on_a_cpu_is_a_sentence(assay: Assay, home: Home) -> None:
    said = assay("anatomy", "device=cpu", "--memory-snapshot", "step.pickle")
    assert said.code == 2
    assert "needs a CUDA device" in said.sentence()
    assert not home.root.exists()
