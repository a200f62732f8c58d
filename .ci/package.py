"""Check the wheel and the sdist in `dist`: their content, and the wheel's command far from the repository.

`make package` builds both first. The wheel must have every file of `src/assay` that git tracks. The sdist must have
what a build needs and what describes the project, and nothing else. The wheel is then installed in an environment of
its own, with the versions of `constraints.txt` and without any extra. Its command runs in an empty folder, on an empty
home.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DESCRIBED = {
    *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "constraints.txt"),
    *("pyproject.toml", ".gitignore", "PKG-INFO"),
}
"""Files of the sdist beside `src/assay`; hatchling adds the last two by itself."""
COMMANDS = (
    "assay --version",
    "assay --help",
    "assay doctor",
    "assay estimate demo",
    "assay compare demo model.n_layer=1 training.steps=12 training.warmup_steps=2 --with sdpa_attention --seeds 1",
)


def main() -> None:
    """Exit with a sentence about the first fault."""
    (wheel,), (sdist,) = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    tracked = subprocess.run(["git", "ls-files", "src/assay"], cwd=ROOT, check=True, capture_output=True, text=True)
    sources = set(tracked.stdout.split())
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    _same("the wheel", {f"src/{name}" for name in names if name.startswith("assay/")}, sources)
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        sys.exit("the wheel has no LICENSE")
    with tarfile.open(sdist) as archive:
        _same("the sdist", {name.partition("/")[2] for name in archive.getnames()}, sources | DESCRIBED)
    with tempfile.TemporaryDirectory() as place:
        _run(wheel, Path(place))


def _same(what: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        sys.exit(f"{what} lacks {sorted(expected - found)} and has {sorted(found - expected)} too many")


def _run(wheel: Path, place: Path) -> None:
    """Install the wheel below an empty folder, and run its command there."""
    venv.create(place / "venv", with_pip=True)
    programs, empty = place / "venv" / "bin", place / "empty"
    empty.mkdir()
    named = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ASSAY_", "VIRTUAL_ENV"))}
    environment = {**named, "ASSAY_HOME": str(place / "home"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    install = ("python", "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    for words in (install, *(command.split() for command in COMMANDS)):
        print("$", *words, flush=True)
        done = subprocess.run([programs / words[0], *words[1:]], cwd=empty, env=environment)
        if done.returncode != 0:
            sys.exit(f"`{' '.join(words)}` exits with {done.returncode}")
    if left := list(empty.iterdir()):
        sys.exit(f"the command wrote {[one.name for one in left]} outside of ASSAY_HOME")


if __name__ == "__main__":
    main()
