"""The folder of a Hugging Face model, with its config.json only, and a text that tells the vocabulary: both suffice."""

import json
from pathlib import Path

import pytest

from assay.config import Home
from cli.conftest import Assay

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False,
}  # fmt: skip
PARAMETERS = 512 * 64 + 3 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "model"
    found.mkdir()
    (found / "config.json").write_text(json.dumps(CONFIG))
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "--device", "t4"),
        ("inference", "--device", "t4"),
        ("cost", "--tokens", "1B", "--device", "t4"),
        ("compare", "--device", "t4", "--with", "fp16_mixed"),
        pytest.param(("estimate", "--trace"), marks=pytest.mark.slow),
        pytest.param(("capacity", "--memory", "60MB"), marks=pytest.mark.slow),
        pytest.param(("recommend", "--device", "t4", "--max-loss-change", "0"), marks=pytest.mark.slow),
        ("recommend", "--device", "h100", "--gpus", "2"),
    ],
)
def test_a_folder_with_its_configuration_is_predicted(assay: Assay, folder: Path, words: tuple[str, ...]) -> None:
    verb, *options = words
    said = assay(verb, str(folder), *options)
    assert said.code == 0, said.sentence()
    if words == ("estimate", "--device", "t4"):
        value = assay(verb, str(folder), *options, "--json").value
        assert (value["parameters"], value["fit"]["batch"]["context"]) == (PARAMETERS, 128)


def test_a_study_of_a_folder_with_its_configuration_is_predicted(assay: Assay, folder: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(f"kind: factorial\nbase: {folder}\nvary: {{optimizations: ['', fp16_mixed]}}\n")
    for verb in ("plan", "run"):
        said = assay("study", verb, str(study), "--predicted", "--device", "t4")
        assert said.code == 0, said.sentence()


def test_a_folder_is_trained_with_weights_only(assay: Assay, folder: Path) -> None:
    assert "is a folder without .safetensors files" in assay("train", str(folder)).sentence()


@pytest.mark.parametrize("text", ['{"model_type": "gpt2",', "[" * 100_000, "é"])
def test_a_configuration_that_cannot_be_read_is_said_to_be_so(assay: Assay, tmp_path: Path, text: str) -> None:
    """It counted as none, so that a folder for which weights are not needed was said to lack them."""
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    for verb in ("inference", "estimate"):
        said = assay(verb, str(tmp_path))
        assert said.code == 2
        assert f"{tmp_path / 'config.json'} cannot be read as JSON: " in said.sentence()


@pytest.mark.parametrize(
    "words", [("capacity", "--memory", "1GB"), ("estimate",), ("cost", "--tokens", "1M", "--device", "t4")]
)
def test_a_text_is_prepared_where_it_tells_the_vocabulary(assay: Assay, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "text.txt").write_text("to be, or not to be\n" * 500)
    verb, *options = words
    said = assay(verb, "shakespeare-char-cpu", f"data.path={tmp_path / 'text.txt'}", *options)
    assert said.code == 0, said.sentence()


def test_whether_a_step_fits_is_said(assay: Assay) -> None:
    said = assay("estimate", "gpt2-124m", "--device", "t4", "--with", "fp16_mixed+sdpa_attention")
    assert "does it fit?\tfits: " in said.out
    assert "of 14.6 GiB, with 8 sequences of 1,024 tokens\n" in said.out
    assert "does it fit?\tdoes not fit: " in assay("estimate", "gpt2-1558m", "--device", "t4").out
    first = assay("capacity", "gpt2-124m", "--device", "t4").out.splitlines()[0]
    assert first.startswith("As it is configured, with 8 sequences, a step does not fit: it needs ")


@pytest.mark.parametrize("verb", ["recommend", "capacity"])
def test_a_text_that_cannot_be_prepared_leaves_no_home(assay: Assay, home: Home, tmp_path: Path, verb: str) -> None:
    (tmp_path / "text.txt").write_text("a text")
    said = assay(verb, "demo", f"data.path={tmp_path / 'text.txt'}", "data.tokenizer=.", "--memory", "4MB")
    assert said.code == 2
    assert "there is no tokenizer '.'" in said.sentence()
    assert not home.root.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "--with", "adamw_8bit+sgd"),
        ("estimate", "--calibrate", "--with", "adamw_8bit+sgd"),
        ("estimate", "--trace", "--device", "h100", "--with", "adamw_8bit+sgd"),
        ("plan", "--with", "adamw_8bit+data_parallel"),
        ("cost", "--tokens", "1B", "--with", "adamw_8bit+sgd"),
        ("capacity", "--memory", "1GB", "--with", "adamw_8bit+sgd"),
    ],
)
def test_a_stack_that_is_refused_after_its_text_leaves_no_home(
    assay: Assay, home: Home, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "text.txt").write_text("to be, or not to be\n" * 500)
    verb, *options = words
    said = assay(verb, "shakespeare-char-cpu", f"data.path={tmp_path / 'text.txt'}", *options)
    assert (said.code, home.root.exists()) == (2, False)
