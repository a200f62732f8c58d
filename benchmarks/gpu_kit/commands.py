"""Parts that are commands of the package: the second document's cells, the fifth document's ladder, and the tests."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from taking import Given, Result

_ROOT = Path(__file__).parents[2]
_LAST = 6000
"""Characters of a command's output that are kept."""


def cells(given: Given) -> Mapping[str, Callable[[], Result]]:
    """One item: the study `gpu-twenty-four`, at 60 steps."""
    words = ["training.steps=60", *([f"data.path={Path(given.text).absolute()}"] if given.text else [])]
    words += ["model.n_layer=1", "model.n_embd=48", "model.context_length=32"] if given.tiny else []
    return {"study": partial(_done, ["-m", "assay", "study", "run", "gpu-twenty-four", *words])}


def ladder(given: Given) -> Mapping[str, Callable[[], Result]]:
    """One item: the ladder of GPT-2 124M."""
    minutes = "1" if given.tiny else "20"
    return {"ladder": partial(_done, [str(_ROOT / "benchmarks/ladder_gpt2_124m.py"), "--minutes", minutes])}


def tests(given: Given) -> Mapping[str, Callable[[], Result]]:
    """One item: the tests that need a GPU. They are found by their marker, because others need more packages."""
    chosen = [str(one) for one in sorted((_ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in one.read_text()]
    marker = "gpu and not device_values" if given.tiny else "gpu"
    return {"gpu": partial(_done, ["-m", "pytest", "-q", "-m", marker, "-p", "no:cacheprovider", *chosen])}


def _done(words: list[str]) -> Result:
    """Run a command of this Python in a folder of its own, and return its exit code and the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        place = folder if "pytest" not in words else _ROOT
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=place)
    said = {"returncode": done.returncode, "output": done.stdout[-_LAST:], "errors": done.stderr[-_LAST:]}
    return said | ({"failed": f"exit code {done.returncode}"} if done.returncode else {})
