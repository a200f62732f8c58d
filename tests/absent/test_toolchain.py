"""What an absent GPU needs of a machine and of a script's environment; each refusal is a sentence with a remedy."""

import sys
from pathlib import Path

import pytest

from assay.absent import toolchain
from assay.absent.toolchain import (
    ScriptEnvironment,
    check_no_gpu,
    check_settings,
    check_tools,
    environment,
    interpreter,
)
from assay.errors import UsageError


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What the script's Python says of its torch; a test may change it."""
    said: dict[str, str | None] = {
        "python": "/env/bin/python",
        "torch": "2.11.0+cu130",
        "cuda": "13.0",
        "folder": "/env/lib/torch",
    }
    monkeypatch.setattr(toolchain, "_looked", lambda python: said)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return said


def test_the_environment_is_that_of_the_named_python(found: dict[str, str | None]) -> None:
    place = environment([sys.executable, "train.py"])
    assert (place.torch, place.cuda, place.folder) == ("2.11.0+cu130", "13.0", Path("/env/lib/torch"))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("torch", None, "has no torch; name the Python of the environment that runs your script"),
        ("cuda", None, "is a CPU build; `assay absent setup -- "),
        ("cuda", "12.8", "is built for CUDA 12.8, and an absent GPU knows CUDA 13; install torch's build for CUDA 13"),
        ("torch", "2.10.0+cu128", "is too old for an absent GPU; install torch 2.11 or newer"),
    ],
)
def test_a_torch_that_cannot_is_refused(
    found: dict[str, str | None], field: str, value: str | None, sentence: str
) -> None:
    found[field] = value
    with pytest.raises(UsageError, match=sentence):
        environment([sys.executable, "train.py"])


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")])
def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch, system: str, machine: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(UsageError, match="needs Linux on x86-64"):
        environment([sys.executable, "train.py"])


def test_torch_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('torch was imported')")
    (package / "version.py").write_text("__version__ = '2.12.0+cu130'\ncuda = '13.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert environment([sys.executable]).torch == "2.12.0+cu130"


def test_the_interpreter_is_the_first_word_or_that_of_a_script(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\nprint()\n")
    tool.chmod(0o755)
    assert interpreter([sys.executable, "train.py"]) == sys.executable
    assert interpreter([str(tool)]) == sys.executable


def test_a_script_with_env_names_the_python_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("tool", "#!/usr/bin/env -S python3\n"), ("python3", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter(["tool"]) == str(tmp_path / "python3")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [("nothing-of-this-name", "there is no program 'nothing-of-this-name'"), ("sh", "'sh' does not start Python")],
)
def test_other_commands_are_refused(command: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        interpreter([command])


def test_a_python_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="could not be asked for its torch"):
        environment([str(broken)])


def _place(folder: Path) -> ScriptEnvironment:
    return ScriptEnvironment("python", "2.11.0+cu130", "13.0", folder / "torch")


def test_a_missing_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="gcc is missing, which builds the absent GPU"):
        check_tools(_place(tmp_path))


def test_missing_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")
    with pytest.raises(UsageError, match="pip install nvidia-cuda-runtime"):
        check_tools(_place(tmp_path))
    (tmp_path / "nvidia" / "cu13" / "include").mkdir(parents=True)
    (tmp_path / "nvidia" / "cu13" / "include" / "cuda_runtime_api.h").touch()
    check_tools(_place(tmp_path))


def test_a_gpu_that_is_there_is_never_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_driver_devices", lambda: 0)
    check_no_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    with pytest.raises(UsageError, match="this machine has a GPU of NVIDIA; run the script on it"):
        check_no_gpu(tmp_path)


def test_a_gpu_that_only_the_driver_shows_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WSL2 has no /dev/nvidia0."""
    monkeypatch.setattr(toolchain, "_driver_devices", lambda: 1)
    with pytest.raises(UsageError, match="an absent GPU would hide it"):
        check_no_gpu(tmp_path)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "whose memory only CUDA knows; unset it"),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, "PYTORCH_ALLOC_CONF asks for cudaMallocAsync"),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "turns torch's counts of memory off; unset it"),
    ],
)
def test_allocators_that_do_not_count_are_refused(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_settings(variables)


def test_expandable_segments_are_no_reason_to_refuse() -> None:
    check_settings({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_NO_CUDA_MEMORY_CACHING": "0"})
