"""Tables: drawn on a terminal, and narrowed to fit it; lines with tabs in a pipe."""

import json
import os
import pty
import subprocess
import sys

import pytest

from assay.cli.console import note, print_blocks, print_json, print_table
from assay.report.kit.blocks import Facts, Table

TABLE = """
from assay.cli.console import print_table
print_table(
    ("name", "long story", "same", "same"),
    [("one", "once upon a time there was a king", "1", "20"), ("two", "and so on", "300", "4")],
    right=("same",), spare=("long story",),
)
"""


def on_a_terminal(columns: int, program: str = TABLE) -> list[str]:
    parent, child = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    subprocess.run([sys.executable, "-c", program], stdout=child, env=env, check=True)
    os.close(child)
    said = os.read(parent, 65536).decode()
    os.close(parent)
    return said.splitlines()


def test_a_wide_terminal_shows_all() -> None:
    lines = on_a_terminal(80)
    assert any("once upon a time there was a king" in line for line in lines)
    assert any(line.rstrip().endswith("300      4") for line in lines)


def test_a_narrow_one_leaves_out_what_is_spare() -> None:
    lines = on_a_terminal(30)
    assert not any("story" in line or "once" in line for line in lines)
    assert any("two" in line and "300" in line for line in lines)


def test_a_pipe_gets_fields_between_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [("1", "2 3")], spare=("b",))
    assert capsys.readouterr().out == "a\tb\n1\t2 3\n"


def test_long_names_of_rows_are_folded_where_nothing_is_spare() -> None:
    rows = "[('sdpa_attention+compile', '−12 %')]"
    long = f"from assay.cli.console import print_table\nprint_table(('name', 'change'), {rows})"
    lines = on_a_terminal(20, long)
    assert any("−12 %" in line for line in lines)
    assert not any("sdpa_attention+compile" in line for line in lines)
    assert any("sdpa_attention+compile" in line for line in on_a_terminal(40, long))


def test_a_long_label_does_not_touch_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks([Facts.of([("predicted by", "a trace"), ("torch", "2.13")])])
    assert capsys.readouterr().out == "predicted by  a trace\ntorch         2.13\n"


def test_texts_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks([Facts.of([("\x1b[2J", "\x1b[2J")]), Table.of(["\x9b31m"], [["\x9b31m"]]), "\x1b]0;title\x07"])
    note("\x1b[2J")
    said = capsys.readouterr()
    assert said.out == "�[2J        �[2J\n�31m\n�31m\n�]0;title�\n"
    assert said.err == "�[2J\n"
    steering = "from assay.cli.console import print_table\nprint_table(('name',), [('\\x1b[2Jevil',)])"
    (line,) = [line for line in on_a_terminal(80, steering) if "evil" in line]
    assert line.strip() == "�[2Jevil"


def test_json_keeps_a_text_without_sending_its_characters(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"\x9b31m ü": ["\x1b[2J", "\u202e", "\U000e0001"]}
    print_json(value)
    text = capsys.readouterr().out
    assert json.loads(text) == value
    assert "ü" in text
    assert text.replace("\n", "").isprintable()


def test_a_figure_that_is_not_finite_is_null_in_printed_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"tokens_per_second": float("inf")})
    assert json.loads(capsys.readouterr().out) == {"tokens_per_second": None}
