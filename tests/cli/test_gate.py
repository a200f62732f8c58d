"""`assay gate`: a lock that holds, growth that is named, and files for other programs."""

from pathlib import Path
from typing import Any

import pytest

from assay.api import gpu_peak
from assay.config import Home
from assay.config.run import Run
from assay.fake.peak import GpuPeak
from assay.launch.gate import read_lock
from assay.launch.gpu_peak import PYTHON
from assay.launch.turns import BaseTree, TimedPair
from assay.records.gated import LOCK, FigureBlock, StepFigures
from assay.records.timing import Block
from cli.conftest import Assay
from support.absent import needs_cuda_build
from support.fake_library import shared_library
from support.repositories import commit, git

STEP = """
import torch
from torch.nn import functional


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


def build():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = MLP().to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = model(torch.randn(512, 256, device=device)).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
"""
BAR = (
    STEP.replace("optimizer.step()", "bar.steps = 1")
    .replace("return step", "bar = Bar()\n    return step")
    .replace(
        "def build()",
        """class Bar:
    def __del__(self):
        import sys

        print("0%|          | 0/1", file=sys.stderr, flush=True)


def build()""",
    )
)
"""A step whose progress bar prints its last line when the process ends."""
GROWN = STEP.replace("self.up(x))", "self.up(x).float())")


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a step, in the working folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    path = Path("train.py")
    path.write_text(STEP)
    return path


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Peaks by device, which a stand-in answers in the place of a process that follows a step."""
    known = {"cpu": 1000, "h100": 2000}

    def figures(name: str, device: str, *_: Any) -> StepFigures:
        found = {"peak_bytes": known[device], "saved_bytes": 10, "flops": 10, "synchronizations": 1}
        block = FigureBlock(
            part="saved: MLP", path="up", operator="aten.gelu", line="a.py:3", count=1, size=known[device]
        )
        return StepFigures.model_validate(
            {"torch": "2.13.0", "figures": found, "instant": "update", "parts": {}, "blocks": {"peak_bytes": (block,)}}
        )

    monkeypatch.setattr("assay.launch.gate.step_figures", figures)
    return known


def test_a_lock_has_several_devices_and_growth_of_one_fails(assay: Assay, step: Path, peaks: dict[str, int]) -> None:
    assert assay("gate", "update", "train.py:build", "--device", "cpu", "--device", "h100").code == 0
    assert assay("gate", "check").out.count("unchanged") == 2
    peaks["h100"] = 2500
    found = assay("gate", "check", "--junit", "gate.xml", "--markdown", "gate.md")
    assert found.code == 5
    assert "train.py:build on cpu: unchanged" in found.out
    assert "train.py:build on h100: grew: peak of tensors" in found.out
    assert "MLP up gelu\ta.py:3\t1.95 KiB\t2.44 KiB" in found.out
    assert 'failures="1"' in Path("gate.xml").read_text()
    assert "| MLP up gelu | a.py:3 | 1.95 KiB | 2.44 KiB |" in Path("gate.md").read_text()
    assert assay("gate", "check", "--device", "cpu").code == assay("gate", "check", "--allow", "25%").code == 0
    assert assay("gate", "check", "--allow", "499B").code == 5
    value = assay("gate", "check", "--json")
    assert [one["verdict"] for one in value.value["steps"]] == ["unchanged", "grew"]
    assert value.code == value.value["exit_code"] == 5
    assert assay("gate", "update", "train.py:build", "--device", "h100").code == 0
    assert assay("gate", "check").code == 0


def test_figures_of_an_absent_gpu_are_locked_where_the_environment_has_one(
    assay: Assay, step: Path, peaks: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = 3000

    def found(source: Run, device: str, **_: Any) -> GpuPeak:
        assert (source.model.own, source.model.own_folder) == ("train.py:build", str(step.parent.absolute()))
        taken = {"peak_bytes": 2000, "requested_peak_bytes": 2500, "reserved_peak_bytes": reserved}
        return GpuPeak.model_validate(
            {
                "device": device,
                "torch": "2.11.0+cu130",
                "ran": True,
                "parameters": 1,
                "instant": "",
                "parts": {},
                **taken,
            }
        )

    monkeypatch.setattr("assay.api.absent_gpu.gpu_peak", found)
    monkeypatch.setenv(PYTHON, "python")
    assert assay("gate", "update", "train.py:build", "--device", "cpu", "--device", "h100").code == 0
    kept = [one.absent for one in read_lock(Path(LOCK)).steps]
    assert kept[0] is None
    assert kept[1] is not None
    assert (kept[1].torch, kept[1].device) == ("2.11.0+cu130", "NVIDIA H100 80GB HBM3")
    reserved += 1
    grown = assay("gate", "check", "--json")
    assert (grown.code, grown.value["steps"][1]["figures"]["reserved_peak_bytes"]) == (5, {"locked": 3000, "now": 3001})
    monkeypatch.delenv(PYTHON)
    unchecked = assay("gate", "check")
    assert unchecked.code == 0
    assert "not checked  figures of an absent NVIDIA H100 80GB HBM3, torch 2.11.0+cu130" in unchecked.out
    assay("gate", "update")
    assert [one.absent for one in read_lock(Path(LOCK)).steps] == kept


def test_a_smaller_step_passes_and_says_to_lock_it(assay: Assay, step: Path, peaks: dict[str, int]) -> None:
    assay("gate", "update", "train.py:build")
    peaks["cpu"] = 999
    found = assay("gate", "check")
    assert found.code == 0
    assert "takes less than is locked" in found.out
    assert "assay gate update" in found.out


def test_another_torch_passes_with_what_differs_and_fails_a_strict_check(
    assay: Assay, step: Path, peaks: dict[str, int]
) -> None:
    assay("gate", "update", "train.py:build")
    text = Path(LOCK).read_text()
    Path(LOCK).write_text(text.replace("2.13.0", "2.11.0").replace("1000", "900"))
    found = assay("gate", "check")
    assert found.code == 0
    assert "locked with torch 2.11.0, checked with 2.13.0; these differ: peak of tensors" in found.out
    assert "MLP up gelu" in found.out
    assert assay("gate", "check", "--strict").code == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check",), "there is no lock"),
        (("update",), "there is no lock"),
        (("check", "train.py:build", "--allow", "much"), "1% or 1MB"),
        (("update", "train.py"), "names no function"),
        (("update", "train.py:build", "--device", "gtx"), "gtx"),
        (("check", "train.py:build", "--junit", "gate.txt"), "must end in .xml"),
    ],
)
def test_words_that_cannot_be_done_are_refused(words: tuple[str, ...], said: str, assay: Assay, step: Path) -> None:
    found = assay("gate", *words)
    assert found.code == 2
    assert said in found.err
    assert not Path(LOCK).exists()


def test_a_step_that_is_not_locked_is_refused_with_the_command(assay: Assay, step: Path, peaks: dict[str, int]) -> None:
    assay("gate", "update", "train.py:build")
    found = assay("gate", "check", "train.py:other")
    assert found.code == 2
    assert "assay gate update train.py:other --device cpu" in found.sentence()


@pytest.mark.slow
def test_growth_is_named_by_module_operator_and_line_for_both_devices(
    assay: Assay, home: Home, step: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_library(tmp_path_factory, home.root)
    both = ("--device", "cpu", "--device", "h100")
    assert assay("gate", "update", "train.py:build", *both).code == 0
    kept = Path(LOCK).read_bytes()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert assay("gate", "update", "train.py:build", *both).code == 0
    assert Path(LOCK).read_bytes() == kept  # of any processor
    step.write_text(GROWN)
    found = assay("gate", "check")
    assert found.code == 5
    line = 1 + GROWN.splitlines().index("        return self.down(functional.gelu(self.up(x).float()))")
    assert found.out.count(f"MLP _to_copy\ttrain.py:{line}\t0 B\t2.00 MiB") >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STEP.replace("def build()", "def build(rows)"), "takes rows"),
        (STEP.replace("return step", "return MLP()"), "return"),
        (STEP.replace("optimizer.step()", "pass"), "no optimizer"),
        (STEP.replace("MLP().to(device)", 'MLP().to("meta")'), "meta"),
        (STEP.replace("return loss.item()", "return 1 if loss > 2 else 0"), "train.py:26 reads a value"),
        (BAR, "no optimizer of torch made a step"),
        (STEP.replace("def step()", "def step(rows)"), "must be given rows"),
    ],
)
def test_a_step_that_cannot_be_followed_is_one_sentence(text: str, said: str, assay: Assay, step: Path) -> None:
    step.write_text(text)
    found = assay("gate", "update", "train.py:build")
    assert found.code == 2
    assert said in found.sentence()


@pytest.mark.slow
@pytest.mark.absent
@needs_cuda_build
def test_an_absent_gpu_says_the_same_of_tensors_and_more_of_the_allocator(
    assay: Assay, home: Home, step: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_library(tmp_path_factory, home.root)
    found = assay("gate", "update", "train.py:build", "--device", "h100", "--json").value["steps"][0]
    peak = gpu_peak("train.py:build", device="h100", way="absent")
    assert peak.peak_bytes == found["figures"]["peak_bytes"]["now"]
    assert peak.reserved_peak_bytes == found["figures"]["reserved_peak_bytes"]["now"] >= peak.requested_peak_bytes
    assert assay("gate", "check").code == 0
    step.write_text(GROWN)
    assert "requested (absent GPU)" in assay("gate", "check").out


@pytest.fixture
def committed(step: Path) -> Path:
    """The file of a step, in a repository whose commit has it; it is changed since."""
    commit(Path(), "a step")
    step.write_text(GROWN)
    return step


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Ratios of pairs, which a stand-in answers in the place of two processes, once it has looked at the base."""
    known = [1.2, 1.21, 1.22]

    def pair(name: str, folder: Path, base: BaseTree, number: int, variables: dict[str, str]) -> TimedPair:
        assert (folder / "train.py").read_text() == GROWN
        assert (base.counterpart(folder) / "train.py").read_text() == STEP
        fields = {"steps": 1, "tokens": 0}
        blocks = (Block(seconds=one, median_step_seconds=one, **fields) for one in (1.0, known[number]))
        return TimedPair("cpu" if variables else "NVIDIA H100", ((next(blocks), next(blocks)),))

    monkeypatch.setattr("assay.launch.turns.timed_pair", pair)
    return known


def test_a_step_is_timed_beside_a_commit(assay: Assay, committed: Path, ratios: list[float]) -> None:
    words = ("gate", "time", "train.py:build", "--base", "main", "--pairs", "3")
    found = assay(*words, "--device", "cpu")
    assert found.code == 0
    assert "train.py:build on cpu takes 1.210 times as long as at main (" in found.out
    assert "95 % interval 1.185 to 1.235." in found.out
    assert "on NVIDIA H100 takes" in assay(*words, "--device", "cuda").out
    slower = assay(*words, "--at-most", "1.1", "--json")
    assert slower.code == slower.value["exit_code"] == 5
    assert slower.value["steps"][0]["ratio"] == pytest.approx(1.21, rel=1e-3)
    assert assay(*words, "--at-most", "1.2").code == 0
    assert len(git(Path(), "worktree", "list").splitlines()) == 1


def test_without_names_the_steps_of_the_lock_are_timed_once_each(
    assay: Assay, committed: Path, ratios: list[float], peaks: dict[str, int]
) -> None:
    assay("gate", "update", "train.py:build", "--device", "cpu", "--device", "h100")
    found = assay("gate", "time", "--base", "main", "--pairs", "3", "--json")
    assert [one["step"] for one in found.value["steps"]] == ["train.py:build"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.py:build", "--base", "main~1"), "git knows no commit 'main~1'"),
        (("new.py:build", "--base", "main"), "new.py:build is not in main ("),
        (("train.py", "--base", "main"), "names no function"),
        (("--base", "main"), "there is no lock"),
        (("train.py:build", "--base", "main", "--device", "h100"), "times of an absent GPU mean nothing"),
        (("train.py:build", "--base", "main", "--at-most", "nan"), "is no ratio of times"),
        (("../train.py:build", "--base", "main"), "is outside of the git repository"),
    ],
)
def test_words_of_which_no_time_can_be_told_are_refused(
    words: tuple[str, ...], said: str, assay: Assay, committed: Path, ratios: list[float]
) -> None:
    Path("new.py").touch()
    found = assay("gate", "time", *words)
    assert found.code == 2
    assert said in found.sentence()
    assert len(git(Path(), "worktree", "list").splitlines()) == 1


def test_no_time_is_told_on_an_absent_gpu_or_where_no_gpu_is_used(
    assay: Assay, committed: Path, ratios: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = TimedPair("cpu", ())
    monkeypatch.setattr("assay.launch.turns.timed_pair", lambda *_: cpu)
    words = ("gate", "time", "train.py:build", "--base", "main")
    assert "does not use a GPU here" in assay(*words, "--device", "cuda").sentence()
    monkeypatch.setenv("ASSAY_ABSENT_NAME", "NVIDIA H100")
    assert "run this without assay absent" in assay(*words).sentence()


def test_an_interrupt_removes_the_worktree(
    assay: Assay, committed: Path, ratios: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = []

    def interrupted(name: str, folder: Path, base: BaseTree, *_: Any) -> TimedPair:
        trees.append(base.root)
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.launch.turns.timed_pair", interrupted)
    assert assay("gate", "time", "train.py:build", "--base", "main").code == 130
    assert len(git(Path(), "worktree", "list").splitlines()) == 1
    assert not trees[0].exists()


@pytest.mark.slow
def test_two_processes_run_the_code_of_the_commit_and_that_of_today(assay: Assay, step: Path, tmp_path: Path) -> None:
    """A step writes who it is, and imports a part from a folder of the repository."""
    seen = tmp_path / "seen.txt"
    Path("lib").mkdir()
    step.write_text(
        f"import sys\nsys.path.append('lib')\nimport part\n{STEP}".replace(
            "        optimizer.step()", f"        optimizer.step()\n        open({str(seen)!r}, 'a').write(part.NAME)"
        )
    )
    for name in ("b", "n"):
        Path("lib/part.py").write_text(f"NAME = {name!r}")
        if name == "b":
            commit(Path(), "a step")
    found = assay("gate", "time", "train.py:build", "--base", "HEAD", "--pairs", "3", "--device", "cpu", "--json")
    assert found.code == 0
    assert len(found.value["steps"][0]["pairs"]) == 3
    assert set(seen.read_text()) == {"b", "n"}
    assert seen.read_text().count("bn") >= 2
    assert seen.read_text().count("nb") >= 2


@pytest.mark.slow
@pytest.mark.absent
@needs_cuda_build
def test_a_file_that_starts_cuda_when_it_is_imported_runs_on_an_absent_gpu(
    assay: Assay, home: Home, step: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared_library(tmp_path_factory, home.root)
    step.write_text(f"import torch\nif torch.version.cuda:\n    torch.cuda.init()\n{STEP}")
    figures = assay("gate", "update", "train.py:build", "--device", "h100", "--json").value["steps"][0]["figures"]
    assert figures["requested_peak_bytes"]["now"] > figures["peak_bytes"]["now"]
