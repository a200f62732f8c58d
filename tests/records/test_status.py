"""Exit codes: one meaning each, from one place."""

import ast
from pathlib import Path

import assay.cli
from assay.records.status import MEANINGS, Exit, Status

CLI = Path(assay.cli.__file__).parent


def test_every_code_has_its_meaning_in_the_reference() -> None:
    assert list(MEANINGS) == list(Exit)
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for code, meaning in MEANINGS.items():
        assert f"| {code.value} | {meaning} |" in page


def test_no_run_ends_with_the_code_of_a_limit() -> None:
    """A run that ran out of memory has no result; only who states a limit is told that it does not hold."""
    assert Exit.UNMET not in {one.exit_code for one in Status}


def test_verbs_name_their_codes() -> None:
    numbered = [
        f"{path.name}:{node.lineno}"
        for path in CLI.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Exit", "sys.exit")
        if any(isinstance(one, ast.Constant) for one in node.args)
    ]
    assert numbered == []
