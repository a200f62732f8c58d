"""The wheel far from the repository: in an environment of its own, one command compares something and names its page.

Its dependencies are those of this environment. `make package` installs them anew, and checks the wheel's content.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = ("model.n_layer=1", "training.steps=12", "training.warmup_steps=2")


def called(*words: str | Path, **how: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.slow
def test_a_wheel_in_an_empty_folder_compares_and_names_its_page(tmp_path: Path) -> None:
    called(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("assay-*.whl")
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = tmp_path / "venv" / "bin" / "python"
    called(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    (tmp_path / "empty").mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ASSAY_"))}
    command = (python.with_name("assay"), "compare", "demo", *SMALL, "--with", "sdpa_attention", "--seeds", "1")
    said = called(*command, cwd=tmp_path / "empty", env=environment)
    page = Path(said.splitlines()[-1])
    assert page.is_relative_to(tmp_path / "empty" / ".assay")
    assert "sdpa_attention" in page.read_text(encoding="utf-8")
    where = called(python, "-c", "import assay; print(assay.__file__)", env=environment)
    assert Path(where.strip()).is_relative_to(packages), "this is not the wheel"
