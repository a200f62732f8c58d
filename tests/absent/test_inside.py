"""The observer: it needs nothing but Python and torch, knows lines, and writes stated values."""

import ast
import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.absent.inside.host_reads import VALUES, _write
from assay.absent.inside.script_lines import _is_torchs, place_now
from assay.absent.launch import INSIDE


@pytest.mark.parametrize("path", sorted(INSIDE.glob("*.py")), ids=lambda path: path.name)
def test_the_observer_imports_the_standard_library_and_torch_only(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in {*sys.stdlib_module_names, "torch"}, name


def test_a_line_is_the_innermost_outside_of_torch() -> None:
    found = place_now()
    assert found["file"].endswith("test_inside.py")
    assert found["caller"] is None


@pytest.mark.parametrize(
    ("file", "torchs"),
    [
        ("/env/lib/python3.11/site-packages/torch/_tensor.py", True),
        ("/usr/lib/python3/dist-packages/torch/nn/modules/module.py", True),
        ("/tmp/torchinductor_me/ab/cab.py", True),
        (ast.__file__, True),
        ("<frozen runpy>", True),
        ("<eval_with_key>.3", True),
        ("<string>", False),
        ("/home/me/torch/train.py", False),
        ("/env/lib/python3.11/site-packages/transformers/trainer.py", False),
    ],
)
def test_files_of_torch_are_known(file: str, torchs: bool) -> None:
    assert _is_torchs(file) is torchs


@pytest.mark.parametrize("name", ["item", "to_dtype_layout", "copy_", "_to_copy", "is_nonzero", "linalg_eigh", ""])
def test_values_are_told_from_sizes(name: str) -> None:
    assert VALUES.match(name)


@pytest.mark.parametrize(
    "name",
    [
        "nonzero",
        "index_Tensor",
        "_unique2",
        "unique_dim",
        "masked_select",
        "repeat_interleave_Tensor",
        "bincount",
        "to_sparse_csr",
    ],
)
def test_sizes_are_told_from_values(name: str) -> None:
    assert not VALUES.match(name)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("300", ctypes.c_int64, 300),
        ("300", ctypes.c_int32, 300),
        ("0.5", ctypes.c_float, 0.5),
        ("1e3", ctypes.c_double, 1000.0),
        ("True", ctypes.c_uint8, 1),
        ("False", ctypes.c_uint8, 0),
    ],
)
def test_a_stated_value_is_written_in_its_size(text: str, kind: Any, value: float) -> None:
    place = kind()
    _write(ctypes.addressof(place), ctypes.sizeof(place), text)
    assert place.value == value


def test_a_module_is_followed_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("print('imported')")
    program = (
        "from assay.absent.inside.importing import after_import\n"
        "after_import('late', lambda: print('followed'))\n"
        "print('before')\nimport late\nimport late\n"
        "after_import('late', lambda: print('at once'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["before", "imported", "followed", "at once", ""], done.stderr
