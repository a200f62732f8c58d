"""Reading files: every form of text, and one clear sentence for each thing that is none."""

import bz2
import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from assay.config import Home, load
from assay.data.corpora import Tally, files_at, list_corpus
from assay.data.records import ReadingRules
from assay.data.sources import cut_utf8, documents, join_documents, read_corpus
from assay.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def read(path: Path | str, field: str = "text", limit: int | None = None, encoding: str = "utf-8") -> str:
    return remarked(path, field, limit, encoding)[0]


def remarked(
    path: Path | str, field: str = "text", limit: int | None = None, encoding: str = "utf-8"
) -> tuple[str, list[str]]:
    """The text of a path, and what is said of the rest."""
    tally = Tally()
    reading = ReadingRules(field, encoding, Path(path).is_dir(), limit)
    text = join_documents(documents(files_at(str(path), tally), reading, tally), limit)
    return text, [str(remark) for remark in tally.remarks()]


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
    text, said = remarked(tmp_path)
    assert text == "A\nB\nC\n"
    assert said == [
        f"left out: 1 name, hidden; {tmp_path / '.git'}",
        f"left out: 1 file of 3 B, with NUL bytes, so no text; {tmp_path / 'e.bin'}",
    ]


@pytest.mark.parametrize("name", ["valid", "validation", "val", "dev"])
def test_a_text_that_is_named_for_validation_is_not_trained_on(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.txt").write_text("train " * 100)
    (tmp_path / f"{name}.txt").write_text("held out")
    config = load("demo", [f"data.path={tmp_path}"]).data
    home = Home(tmp_path / "home")
    found = read_corpus(list_corpus(config, home), config, home)
    assert (found.train, found.validation) == ("train " * 100, "held out")


def test_texts_of_splits_that_are_joined_are_named(tmp_path: Path) -> None:
    for name in ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"):
        (tmp_path / name).write_text(name)
    config, home = load("demo", [f"data.path={tmp_path}"]).data, Home(tmp_path.parent / "home")
    listing = list_corpus(config, home)
    assert (len(listing.train), listing.validation) == (3, None)
    (said,) = map(str, listing.remarks)
    assert said.startswith("read as it is: 2 files of 33 B, whose names tell of a split of its own; all files are one")
    (tmp_path / "wiki.valid.tokens").unlink()
    (said,) = map(str, list_corpus(config, home).remarks)
    assert said.startswith("read as it is: 1 file of 16 B, whose names tell of a split of its own; all files are one")
    (tmp_path / "wiki.train.tokens").unlink()
    assert list_corpus(config, home).remarks == ()


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (("Train.txt", "Test.txt"), 1),
        (("my-train.txt", "my-test.txt", "notes.txt"), 1),
        (("train.jsonl", "test.jsonl", "notes.txt"), 1),
        (("train.py", "test.py"), 0),
        (("contest.txt", "trainer.txt"), 0),
    ],
)
def test_a_test_set_beside_a_training_text_is_named(tmp_path: Path, names: tuple[str, ...], joined: int) -> None:
    for name in names:
        (tmp_path / name).write_text("a")
    listing = list_corpus(load("demo", [f"data.path={tmp_path}"]).data, Home(tmp_path.parent / "home"))
    assert len(listing.train) == len(names)
    assert [remark.count for remark in listing.remarks] == [joined] * bool(joined)


@pytest.mark.parametrize("first", [0, 1])
def test_a_numbered_file_that_is_missing_is_named(tmp_path: Path, first: int) -> None:
    config = load("demo", [f"data.path={tmp_path}"]).data

    def said(*numbers: int) -> list[str]:
        for number in numbers:
            (tmp_path / f"train-{first + number:05d}-of-00003.jsonl").write_text('{"text": "a"}\n')
        return [str(one) for one in list_corpus(config, Home(tmp_path)).remarks]

    (only,) = said(0, 2)
    assert only.startswith("left out: 1 file, of which the numbers of its neighbours tell, and which is not there; ")
    assert only.endswith(f"train-{first + 1:05d}-of-00003")
    assert said(1) == []


def test_an_empty_validation_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("train")
    (tmp_path / "valid.txt").write_text("")
    config, home = load("demo", [f"data.path={tmp_path}"]).data, Home(tmp_path)
    with pytest.raises(UsageError, match=r"valid\.txt is held out and has no text"):
        read_corpus(list_corpus(config, home), config, home)


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
        ('{"text": "\\ud800"}', "line 2: the field 'text' has half a surrogate pair"),
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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file or folder"):
        read(tmp_path / "absent.txt")
    with pytest.raises(UsageError, match="no file matches"):
        read(f"{tmp_path}/*.nothing")
    with pytest.raises(UsageError, match="contains no files"):
        read(tmp_path)


def test_parts_with_one_reason_are_one_remark_with_their_number_and_size(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_bytes("Bücher".encode("latin-1"))
    (tmp_path / "d.bin").write_bytes(b"a\0")
    (tmp_path / "e.txt").symlink_to(tmp_path / "absent")
    (tmp_path / "f.txt").write_text("five\n")
    text, said = remarked(tmp_path)
    assert text == "five\n"
    assert [one.split("; ")[0] for one in said] == [
        "left out: 1 name, a link without its file, or no file",
        "left out: 3 files of 18 B, not UTF-8",
        "left out: 1 file of 2 B, with NUL bytes, so no text",
    ]
    assert read(tmp_path / "a.txt", encoding="latin-1") == "Bücher"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
def test_text_in_another_encoding_is_read_and_cut_by_its_bytes_in_utf8(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text("Bücher über Äpfel", encoding=encoding)
    (tmp_path / "a.csv").write_text("id,text\n1,Bücher\n", encoding=encoding)
    assert read(tmp_path / "a.txt", encoding=encoding) == "Bücher über Äpfel"
    assert read(tmp_path / "a.txt", encoding=encoding, limit=3) == "Bü"
    assert read(tmp_path / "a.csv", encoding=encoding) == "Bücher"


def test_line_ends_and_marks_that_other_programs_read_in_another_way_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo")
    text, said = remarked(tmp_path / "a.txt")
    assert text == "\ufeffone\r\ntwo"
    assert [("nanoGPT" in one, "utf-8-sig" in one) for one in said] == [(True, False), (False, True)]


def test_compressed_files_are_read_by_the_name_that_is_compressed(tmp_path: Path) -> None:
    line = json.dumps({"text": "one"}).encode() + b"\n"
    for name, content in {
        "a.jsonl.gz": gzip.compress(line),
        "b.jsonl.bz2": bz2.compress(line),
        "c.jsonl.xz": lzma.compress(line),
        "d.txt.gz": gzip.compress(b"plain"),
    }.items():
        (tmp_path / name).write_bytes(content)
    with arrow.output_stream(str(tmp_path / "e.jsonl.zst"), compression="zstd") as stream:
        stream.write(line)
    with arrow.output_stream(str(tmp_path / "f.txt.zst"), compression="zstd") as stream:
        stream.write(b"plain")
    assert read(tmp_path) == "one\none\none\nplain\none\nplain"
    assert read(tmp_path / "d.txt.gz", limit=3) == "pla"


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "a.jsonl.xz", "a.csv.bz2"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"plain text")
    with pytest.raises(UsageError, match=f"{name} cannot be decompressed as"):
        read(tmp_path / name)


def test_arrays_and_tables_give_their_field_and_no_syntax(tmp_path: Path) -> None:
    records = [{"text": 'one, "two"', "id": 1}, {"text": None, "id": 2}, {"text": "three\nfour", "id": 3}]
    (tmp_path / "a.json").write_text(json.dumps(records))
    (tmp_path / "b.json").write_text("".join(json.dumps(one) + "\n" for one in records))
    (tmp_path / "c.json").write_text(json.dumps(["five", "six"]))
    for name, separator in (("d.csv", ","), ("e.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as stream:
            table = csv.writer(stream, delimiter=separator)
            table.writerows([("id", "text"), *((one["id"], one["text"] or "") for one in records)])
    whole = 'one, "two"\nthree\nfour'
    for name in ("a.json", "b.json"):
        text, said = remarked(tmp_path / name)
        assert (text, len(said)) == (whole, 1)
        assert said[0].startswith("left out: 1 record, null and no text; ")
    assert read(tmp_path / "c.json") == "five\nsix"
    assert {read(tmp_path / name) for name in ("d.csv", "e.tsv")} == {whole}


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_the_separator_of_a_table_is_the_one_by_which_it_has_the_column(
    tmp_path: Path, name: str, separator: str, quoting: int
) -> None:
    with (tmp_path / name).open("w", newline="") as stream:
        table = csv.writer(stream, delimiter=separator, quoting=quoting)  # type: ignore[arg-type]
        table.writerows([["id", "text", "mark"], [1, "one, two; three\tfour", 2.5], [2, "five", 1]])
    assert read(tmp_path / name) == "one, two; three\tfour\nfive"
    with pytest.raises(UsageError, match=r"it has no column 'body' \(it has id, text, mark\)"):
        read(tmp_path / name, "body")


def test_strings_that_are_stored_once_are_text(tmp_path: Path) -> None:
    texts = ["one", "two", "one", None]
    for number, kind in enumerate((arrow.dictionary(arrow.int16(), arrow.string()), arrow.string_view())):
        column = (
            arrow.array(texts, type=arrow.string()).cast(kind) if number else arrow.array(texts).dictionary_encode()
        )
        parquet.write_table(arrow.table({"text": column}), tmp_path / f"{number}.parquet")
        assert read(tmp_path / f"{number}.parquet") == "one\ntwo\none"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_byte_order_mark_names_the_encoding_to_set(tmp_path: Path, encoding: str) -> None:
    text = "text\nGrüße, 書き\n" * 2000
    for name in ("a.txt", "a.csv", "a.jsonl"):
        (tmp_path / name).write_text(text, encoding=encoding)
        with pytest.raises(UsageError, match=rf"set data\.encoding={encoding}"):
            read(tmp_path / name)
        (tmp_path / name).unlink()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text(text, encoding=encoding)
    (folder / "b.txt").write_text("plain")
    (folder / "c.bin").write_bytes(b"\xff\xfe\x00")
    found, said = remarked(folder)
    assert found == "plain"
    assert [one.partition(", ")[2].partition(";")[0] for one in said] == [
        f"{encoding} by the byte order mark, not UTF-8",
        "with NUL bytes, so no text",
    ]
    assert remarked(folder, encoding=encoding)[0] == text


def test_files_in_utf8_that_another_encoding_reads_are_named(tmp_path: Path) -> None:
    for name, text, encoding in (
        ("a.txt", "Grüße", "utf-8"),
        ("b.txt", "Grüße", "latin-1"),
        ("c.txt", "plain", "utf-8"),
    ):
        (tmp_path / name).write_text(text, encoding=encoding)
    text, (said,) = remarked(tmp_path, encoding="latin-1")
    assert text == "GrÃ¼Ã\x9fe\nGrüße\nplain"
    assert "1 file of 7 B, in valid UTF-8" in said
    assert str(tmp_path / "a.txt") in said


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", '{"rows": []}', r"no records: it has no field 'text' \(it is one object with rows\)"),
        ("a.json", '[{"body": "x"}]', "its first record has body"),
        ("a.json", "[1, 2]", "it is no array of records"),
        ("a.json", "[", "it is not JSON"),
        ("a.json", '[{"text": "x"}, {"text": 3}]', "record 2: the field 'text' is not text"),
        ("a.csv", "id,body\n1,x\n", r"it has no column 'text' \(it has id, body\)"),
        ("a.csv", "id,text\n1,x, and y\n", "row 2 has 3 columns and the header 2"),
        ("a.csv", 'id,text\n1,"x\n', "is not a row of a table"),
    ],
)
def test_a_named_file_without_records_is_refused_and_none_is_lost_in_a_folder(
    tmp_path: Path, name: str, content: str, says: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=says):
        read(tmp_path / name)
    if "no " in says or "first" in says or "not JSON" in says:  # a folder of programs has files of settings
        text, (said,) = remarked(tmp_path)
        assert text == content
        assert said.startswith("read as it is: 1 file")


def test_a_folder_that_datasets_saved_is_read_without_it(tmp_path: Path) -> None:
    for place, texts in ((tmp_path / "one", ["a", None, "b"]), (tmp_path / "many" / "train", ["c"])):
        place.mkdir(parents=True)
        table = arrow.table({"text": texts})
        with arrow.ipc.new_stream(str(place / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        (place / "dataset_info.json").write_text('{"features": {}}')
        (place / "state.json").write_text('{"_split": "train"}')
        (place / "cache-1.arrow").write_bytes(b"?")
    text, said = remarked(tmp_path / "one")
    assert text == "a\nb"
    assert [one.split("; ")[0] for one in said] == [
        "left out: 3 files of 36 B, metadata of a data set and no text",
        "left out: 1 record, null and no text",
    ]
    with arrow.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as file:
        file.write_table(table)
    assert read(tmp_path / "x.arrow") == "c"
    (tmp_path / "bad.arrow").write_text("no")
    with pytest.raises(UsageError, match="not a readable Arrow file"):
        read(tmp_path / "bad.arrow")


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)]
)
def test_streams_of_a_compressed_file_are_joined_and_nothing_behind_them_is_dropped(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    for content in (b"a" * 100_000, b""):
        path.write_bytes(compress(content) + b"\0" * 8 + compress(b"bc\n") + b"\0" * 4)
        assert read(path) == content.decode() + "bc\n"
    for faulty in (compress(b"a\n") + b"left behind", compress(b"a\n")[:-3]):
        path.write_bytes(faulty)
        with pytest.raises(UsageError, match=f"cannot be decompressed as {suffix}"):
            read(path)


def test_links_to_folders_and_folders_of_a_pattern_are_said(tmp_path: Path) -> None:
    (tmp_path / "books" / "old").mkdir(parents=True)
    (tmp_path / "books" / "a.txt").write_text("A\n")
    (tmp_path / "books" / "old" / "b.txt").write_text("B\n")
    (tmp_path / "books" / "gone.txt").symlink_to("nowhere")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "c.txt").write_text("C\n")
    (tmp_path / "all" / "books").symlink_to(tmp_path / "books")
    text, said = remarked(tmp_path / "all")
    assert text == "C\n"
    assert said == [f"left out: 1 name, a link to a folder, which is not followed; {tmp_path}/all/books"]
    text, said = remarked(f"{tmp_path}/books/*")
    assert text == "A\n"
    assert said == [
        f"left out: 1 name, a link without its file, or no file; {tmp_path}/books/gone.txt",
        f"left out: 1 name, a folder; the pattern **/* matches its files too; {tmp_path}/books/old",
    ]
    text, said = remarked(f"{tmp_path}/books/**/*")
    assert text == "A\nB\n"
    assert len(said) == 1


def test_texts_of_tables_that_are_not_utf_8_are_named(tmp_path: Path) -> None:
    table = arrow.table({"text": arrow.array([b"abc", b"\xff"]).view(arrow.string())})
    parquet.write_table(table, tmp_path / "a.parquet")
    with arrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    for name, form in (("a.parquet", "Parquet"), ("a.arrow", "Arrow")):
        with pytest.raises(UsageError, match=f"{name} is not a readable {form} file: 'utf-8' codec"):
            read(tmp_path / name)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = arrow.table([["a"], ["b"]], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with arrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    for name in ("a.parquet", "a.arrow", "a.csv"):
        with pytest.raises(UsageError, match=f"{name} has 2 columns 'text'; rename"):
            read(tmp_path / name)


def test_carriage_returns_of_records_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a"}) + "\n" + json.dumps({"text": "b\r\nc"}))
    (tmp_path / "a.csv").write_bytes(b'text,id\r\na,1\r\n"b\r\nc",2\r\n')
    for name in ("a.jsonl", "a.csv"):
        text, said = remarked(tmp_path / name)
        assert text == "a\nb\r\nc"
        assert said == [
            f"read as it is: 1 record, with carriage returns (\\r), which become tokens; {tmp_path / name}, record 2"
        ]


def test_an_array_may_begin_with_null(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[null, {"text": "a"}, null, "b"]')
    text, said = remarked(tmp_path / "a.json")
    assert text == "a\nb"
    assert said == [f"left out: 2 records, null and no text; the first is {tmp_path / 'a.json'}, record 1"]


def test_the_data_of_a_saved_data_set_are_what_it_lists(tmp_path: Path) -> None:
    table = arrow.table({"text": ["a", "b"]})
    for name in ("data-0.arrow", "data-1.arrow", "stale.arrow"):
        with arrow.ipc.new_stream(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-0.arrow"}, {"filename": "data-1.arrow"}]})
    )
    text, said = remarked(tmp_path)
    assert text == "a\nb\na\nb"
    assert any("that the data set beside it does not list; " in one and "stale.arrow" in one for one in said)
    (tmp_path / "data-1.arrow").unlink()
    with pytest.raises(UsageError, match=r"is a data set without its file data-1\.arrow; copy it whole"):
        read(tmp_path)
    for left in ("data-0.arrow", "stale.arrow"):
        (tmp_path / left).unlink()
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(UsageError, match="contains no files"):
        read(tmp_path)
