"""Rules of a trace beside torch's CUDA build on an absent GPU, which needs none: random cases, all equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.absent.cuda_library import library_folder
from assay.absent.gpus import absent_device, description
from assay.absent.launch import library_environment
from assay.absent.toolchain import environment
from assay.fake import hooks
from support.absent import PYTHON, needs_cuda_build

pytestmark = [pytest.mark.absent, needs_cuda_build]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both libraries are built once."""
    return tmp_path_factory.mktemp("oracle")


def printed(script: str, cache: Path, device: str, count: int, *, by_rule: bool) -> list[str]:
    """Return the lines that a script of cases prints, by the rules or on an absent GPU."""
    words = [str(ROOT / "tests" / "support" / script), str(count), "41"]
    variables = dict(os.environ) | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
    if by_rule:
        variables["LIBRARY"] = str(hooks.hooks_library(cache, lambda text: None))
        command = [sys.executable, *words, device]
    else:
        library = library_folder(environment([PYTHON]), cache, lambda text: None)
        variables |= library_environment(library) | description(absent_device(device), 1)
        command = [PYTHON, *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090", "rtx5090", "t4"])
def test_attention_takes_the_kernel_that_torch_chooses(cache: Path, device: str) -> None:
    chosen = printed("attention_cases.py", cache, device, 400, by_rule=False)
    assert printed("attention_cases.py", cache, device, 400, by_rule=True) == chosen
    assert len(set(chosen)) >= (2 if device == "t4" else 3)


@pytest.mark.parametrize("device", ["h200", "rtx4090"])
def test_sums_take_what_the_kernel_takes(cache: Path, device: str) -> None:
    measured = printed("reductions.py", cache, device, 600, by_rule=False)
    assert printed("reductions.py", cache, device, 600, by_rule=True) == measured
    assert sum(one != "0" for one in measured) > 50


def test_gradients_are_added_as_autograd_adds_them(cache: Path) -> None:
    measured = printed("backward_cases.py", cache, "h200", 0, by_rule=False)
    assert printed("backward_cases.py", cache, "h200", 0, by_rule=True) == measured
