"""The library of hooks: built once, kept by torch's version, refused in a sentence where it cannot be."""

import subprocess
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.fake import hooks


def test_without_a_compiler_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no compiler of C\+\+ is found"):
        hooks.hooks_library(tmp_path, print)
    assert list(tmp_path.iterdir()) == []


def test_headers_that_do_not_fit_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "absent_cuda.cpp"
    source.write_text("#include <ATen/no_such_header.h>\n", encoding="utf-8")
    monkeypatch.setattr(hooks, "SOURCE", source)
    with pytest.raises(UsageError, match=r"the hooks of an absent GPU do not compile for torch \S+: .*no_such_header"):
        hooks.hooks_library(tmp_path / "cache", lambda text: None)
    assert not list((tmp_path / "cache").glob("torch-*"))


def test_a_library_that_is_there_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(hooks, "_compile", lambda compiler, torch, library: library.write_bytes(b""))
    first = hooks.hooks_library(tmp_path, told.append)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was built again"))
    assert hooks.hooks_library(tmp_path, told.append) == first
    assert len(told) == 1
    assert "some seconds, once" in told[0]


def test_hooks_are_not_loaded_after_torch(tmp_path: Path) -> None:
    import torch  # noqa: F401

    with pytest.raises(RuntimeError, match="before torch is imported"):
        hooks.load(tmp_path / "library.so")
