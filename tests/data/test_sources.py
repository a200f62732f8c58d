"""Reading files: every form of text, and one clear sentence for each thing that is none."""

import json
from pathlib import Path

import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from assay.data.sources import cut_utf8, documents, files_at, join_documents
from assay.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def read(path: Path | str, field: str = "text", limit: int | None = None) -> str:
    found = documents(files_at(str(path)), field, skip_binary=Path(path).is_dir(), limit_bytes=limit)
    return join_documents(found, limit)


@given(TEXT, st.integers(0, 40))
def test_a_cut_is_a_prefix_of_whole_characters(text: str, limit: int) -> None:
    cut = cut_utf8(text.encode(), limit)
    assert len(cut) <= limit
    assert text.startswith(cut.decode())
    assert len(cut) > limit - 4 or len(cut) == len(text.encode())


@given(st.lists(TEXT, max_size=5), st.integers(1, 40))
def test_a_limit_reads_the_start_of_the_whole(texts: list[str], limit: int) -> None:
    whole = join_documents(texts).encode()
    assert join_documents(texts, limit).encode() == cut_utf8(whole, limit)


def test_documents_are_joined_with_one_line_break() -> None:
    assert join_documents(["a", "b\n", "c", ""]) == "a\nb\nc\n"


def test_a_file_is_read_verbatim(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\ntwo é".encode())
    assert read(tmp_path / "a.txt") == "one\r\ntwo é"
    assert read(tmp_path / "a.txt", limit=10) == "one\r\ntwo "


def test_a_folder_is_read_in_order_without_binary_and_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b.md").write_text("B\n")
    (tmp_path / "a.py").write_text("A\n")
    (tmp_path / "sub" / "c.txt").write_text("C\n")
    (tmp_path / ".git" / "d.txt").write_text("hidden")
    (tmp_path / "e.bin").write_bytes(b"\xff\xfe\x00")
    assert read(tmp_path) == "A\nB\nC\n"


def test_a_glob_is_sorted(tmp_path: Path) -> None:
    for name in ("2.txt", "1.txt", "3.md"):
        (tmp_path / name).write_text(name[0])
    assert read(f"{tmp_path}/*.txt") == "1\n2"


def test_json_lines_and_parquet_give_their_field(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "one", "id": 1}), "", json.dumps({"text": "two"})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    parquet.write_table(arrow.table({"body": ["three", None, "four"]}), tmp_path / "b.parquet")
    assert read(tmp_path / "a.jsonl") == "one\ntwo"
    assert read(tmp_path / "b.parquet", "body") == "three\nfour"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[1]", "line 2 is not a JSON object"),
        ("{", "line 2 is not JSON"),
        ('{"body": "x"}', r"line 2 lacks the field 'text' \(it has body\)"),
        ('{"text": 3}', "line 2: the field 'text' is not text"),
        ('{"text": "\\ud800"}', "line 2: the field 'text' is not text"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n' + line + "\n")
    with pytest.raises(UsageError, match=says):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(("content", "says"), [(b"ab\0c", "NUL bytes"), (b"ab\xff", "not UTF-8 at byte 2")])
def test_a_binary_file_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read(tmp_path / "a.txt")


def test_a_bad_parquet_is_refused(tmp_path: Path) -> None:
    parquet.write_table(arrow.table({"body": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="lacks the column 'text'"):
        read(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="has int64, not text"):
        read(tmp_path / "a.parquet", "body")
    (tmp_path / "b.parquet").write_text("no")
    with pytest.raises(UsageError, match="is not a readable Parquet file"):
        read(tmp_path / "b.parquet")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file or folder"):
        read(tmp_path / "absent.txt")
    with pytest.raises(UsageError, match="no file matches"):
        read(f"{tmp_path}/*.nothing")
    with pytest.raises(UsageError, match="contains no files"):
        read(tmp_path)
