"""Notebooks run from a clean kernel to their end, with the small settings that they have."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LONGEST = 900
"""Seconds after which a cell hangs; on a busy machine it may take minutes."""
NAMED = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that all notebooks share, so that one of them measures the machine."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.notebooks
@NAMED
def test_a_notebook_runs(path: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("ASSAY_HOME", str(home))
    book = nbformat.read(path, as_version=4)
    NotebookClient(
        book, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [one for cell in book.cells if cell.cell_type == "code" for one in cell.outputs]
    assert any(one.output_type in ("execute_result", "display_data") for one in shown)


@NAMED
def test_a_notebook_is_stored_without_outputs_and_begins_with_its_question(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert cells[0]["cell_type"] == "markdown"
    assert "".join(cells[0]["source"]).startswith("# ")
