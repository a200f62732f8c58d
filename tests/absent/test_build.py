"""The library is built once for each torch and each state of the sources; two builders do not disturb each other."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.absent import build
from assay.absent.build import LIBRARY, SOURCES, built, cache_name, wanted_symbols
from assay.absent.toolchain import ScriptEnvironment
from assay.errors import UsageError

LISTING = """
libtorch_cuda.so:
                 U cudaMalloc@libcudart.so.13
                 U cublasSgemm_v2@libcublas.so.13
                 U cuLaunchKernel
                 w _ITM_deregisterTMCloneTable
                 U malloc@GLIBC_2.2.5
"""


def place(folder: Path, torch: str = "2.11.0+cu130") -> ScriptEnvironment:
    return ScriptEnvironment("python", torch, "13.0", folder / "torch")


def test_wanted_symbols_are_those_of_cuda_s_libraries() -> None:
    assert wanted_symbols(LISTING) == {"cudaMalloc", "cublasSgemm_v2", "cuLaunchKernel"}


def test_the_name_of_the_cache_follows_torch_and_symbols(tmp_path: Path) -> None:
    one = cache_name(place(tmp_path), {"cudaMalloc"})
    assert one.startswith("torch-2.11.0+cu130-")
    assert one == cache_name(place(tmp_path), {"cudaMalloc"})
    assert one != cache_name(place(tmp_path), {"cudaMalloc", "cudaFree"})
    assert one != cache_name(place(tmp_path, "2.12.0+cu130"), {"cudaMalloc"})


def test_the_name_of_the_cache_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_name(place(tmp_path), ())
    shutil.copytree(SOURCES, tmp_path / "c")
    (tmp_path / "c" / "counts.c").write_text("/* another text */")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "c")
    assert cache_name(place(tmp_path), ()) != before


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders in which a library was compiled; here it is an empty file."""
    folders: list[Path] = []

    def instead(where: ScriptEnvironment, wanted: set[str], folder: Path) -> None:
        folders.append(folder)
        (folder / LIBRARY).touch()

    monkeypatch.setattr(build, "compile_library", instead)
    monkeypatch.setattr(build, "check_tools", lambda where: None)
    return folders


def test_it_is_built_once_and_says_so(tmp_path: Path, compiled: list[Path]) -> None:
    said: list[str] = []
    first = built(place(tmp_path), tmp_path / "cache", said.append)
    again = built(place(tmp_path), tmp_path / "cache", said.append)
    assert first == again
    assert (first / LIBRARY).exists()
    assert len(compiled) == 1
    assert said == ["building the absent GPU for torch 2.11.0+cu130; a few seconds, once"]


def test_a_builder_that_comes_second_takes_the_first_one_s(
    tmp_path: Path, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / cache_name(place(tmp_path), ())

    def beside(where: ScriptEnvironment) -> None:
        folder.mkdir(parents=True)
        (folder / LIBRARY).write_text("the other's")

    monkeypatch.setattr(build, "check_tools", beside)
    assert built(place(tmp_path), tmp_path / "cache", lambda text: None) == folder
    assert (folder / LIBRARY).read_text() == "the other's"
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [folder.name]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed here")
def test_a_complaint_of_gcc_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"gcc could not build the absent GPU: .*error.*headers may be too new"):
        build._gcc(["-x", "c", "-E", "-"], '#include "nothing_of_this_name.h"\n')


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.c")), ids=lambda path: path.name)
def test_sources_are_readable(path: Path) -> None:
    """A source opens with a comment, and has no line that a reader must scroll for."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/* ")
    assert max(map(len, text.splitlines())) <= 160
    assert text.count("\n") <= 400


def _headers() -> list[Path]:
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    return sorted((Path(torch.origin).parents[1] / "nvidia").glob("*/include"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed here")
@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.c")), ids=lambda path: path.name)
def test_sources_compile_without_a_warning(path: Path) -> None:
    folders = [one for one in _headers() if (one / "cuda_runtime_api.h").exists()]
    if not folders:
        pytest.skip("CUDA's headers are not beside this torch")
    headers = [f"-I{one}" for one in (SOURCES, *_headers())]
    flags = [*build.FLAGS, "-Wall", "-Wextra", "-Werror", *headers, "-idirafter", str(SOURCES / "headers")]
    done = subprocess.run(["gcc", *flags, "-fsyntax-only", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
