"""Files of others: each one stands on the page, and all answers are those that are stated."""

from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "others.md"


@pytest.fixture
def script() -> ModuleType:
    """Return the script, which lies beside others in `benchmarks/`."""
    pytest.importorskip("transformers")
    pytest.importorskip("datasets")
    import others  # type: ignore[import-not-found]

    found: ModuleType = others
    return found


def test_the_page_has_all_cases_and_none_that_is_wrong(script: ModuleType) -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text("utf-8").splitlines() if " | " in line]
    cases = [case.has for case in (*script.CHECKPOINTS, *script.TEXTS, *script.TABLES)]
    assert [row for row in rows if row not in ("what someone has", "---")] == cases
    assert "**wrong**" not in PAGE.read_text("utf-8")


def test_an_answer_without_the_right_words_is_wrong(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("params,tokens,loss\nmany,1B,3\n")
    case = script.TABLES[-1]._replace(path="points.csv", right="write a number")
    said = "points.csv, line 2: the column params has 'many'; write a number such as 1e7"
    assert script.tried(case, tmp_path) == (said, True)
    assert not script.tried(case._replace(right="fitted to 24 points"), tmp_path).right


@pytest.mark.slow
def test_files_of_others_are_answered_as_stated(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["others.py", "--out", str(tmp_path / "page.md")])
    assert script.main() == 0
