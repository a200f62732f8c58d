"""A prepared folder stands on its own, and a torn or altered file in it is noticed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from assay.config import DataConfig, Home
from assay.data import prepared_folder as manifests
from assay.data.preparation import prepare
from assay.data.prepared_folder import Prepared, check_lengths, dtype_for, load_tokenizer, open_prepared, read_manifest
from assay.errors import UsageError


@pytest.fixture
def prepared(home: Home, story: Path) -> Prepared:
    return prepare(DataConfig(path=str(story)), home)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_the_shards_hold_the_text(prepared: Prepared, story: Path) -> None:
    text = story.read_bytes()
    assert prepared.train.ids.dtype == np.uint16
    assert bytes(prepared.train.ids.astype(np.uint8)) + bytes(prepared.validation.ids.astype(np.uint8)) == text
    assert (prepared.vocab_size, prepared.bytes_per_token) == (256, 1.0)
    assert not prepared.train.ids.flags.writeable


def test_bytes_per_token_is_of_the_validation_text(home: Home, story: Path) -> None:
    by_characters = prepare(DataConfig(path=str(story), tokenizer="char"), home)
    held_out = by_characters.tokenizer.decode(by_characters.validation.ids)
    assert by_characters.bytes_per_token == len(held_out.encode()) / len(held_out) > 1


def test_a_folder_needs_nothing_else(prepared: Prepared, story: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(prepared.folder, moved)
    story.unlink()
    opened = open_prepared(str(moved))
    assert opened.digest == prepared.digest
    assert opened.tokenizer.decode(opened.train.ids[:4]) == "Line"
    assert load_tokenizer(moved).name == "byte"


@pytest.mark.parametrize("name", ["train.bin", "validation.bin", "tokenizer.json"])
@pytest.mark.parametrize("position", [0, -1])
def test_one_flipped_bit_is_noticed(prepared: Prepared, name: str, position: int) -> None:
    flip(prepared.folder / name, position)
    with pytest.raises(UsageError, match=rf"{name} does not match its manifest; delete .* or run assay data prepare"):
        open_prepared(prepared.folder)


@pytest.mark.parametrize("name", ["train.bin", "validation.bin", "tokenizer.json", "manifest.json"])
def test_a_torn_or_missing_file_is_noticed(prepared: Prepared, name: str) -> None:
    path = prepared.folder / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UsageError, match=name):
        open_prepared(prepared.folder)
    path.unlink()
    with pytest.raises(UsageError, match=str(prepared.folder)):
        open_prepared(prepared.folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [("digest", "0" * 64), ("vocab_size", 255), ("format", 2), ("dtype", "uint32"), ("other", 1)],
)
def test_an_altered_manifest_is_noticed(prepared: Prepared, key: str, value: object) -> None:
    path = prepared.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UsageError, match=r"manifest\.json (is damaged|is inconsistent)"):
        read_manifest(prepared.folder)


def test_a_large_shard_is_checked_at_its_ends_unless_thoroughly(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(manifests, "EDGE_BYTES", 16)
    path = prepared.folder / "manifest.json"
    values = json.loads(path.read_text())
    for split in ("train", "validation"):
        values[split]["edges_sha256"] = manifests.edges_sha256(prepared.folder / values[split]["file"])
    altered = manifests.Manifest.model_validate_json(json.dumps(values))
    values["digest"] = manifests.content_digest(altered.vocab_size, altered.dtype, altered.splits)
    path.write_text(json.dumps(values))
    flip(prepared.folder / "train.bin", 500)
    open_prepared(prepared.folder)
    with pytest.raises(UsageError, match=r"train\.bin does not match"):
        open_prepared(prepared.folder, thorough=True)
    flip(prepared.folder / "train.bin", 500)
    flip(prepared.folder / "train.bin", -3)
    with pytest.raises(UsageError, match=r"train\.bin does not match"):
        open_prepared(prepared.folder)


def test_a_folder_that_was_never_prepared_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a prepared corpus; run assay data prepare"):
        open_prepared(tmp_path / "absent")


def test_a_split_shorter_than_a_sequence_is_named(prepared: Prepared) -> None:
    check_lengths(prepared, len(prepared.validation) - 1)
    with pytest.raises(UsageError, match=rf"the validation split has {len(prepared.validation)} tokens"):
        check_lengths(prepared, len(prepared.validation))
    with pytest.raises(UsageError, match="the train split has"):
        check_lengths(prepared, len(prepared.train))


def test_ids_are_stored_as_narrow_as_they_fit() -> None:
    assert [dtype_for(size) for size in (256, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
