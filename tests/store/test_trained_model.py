"""An export keeps what training did not change of the checkpoint that a run began with, and lists what differs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from assay.config import ModelConfig, load
from assay.config.hf import config_from_hf
from assay.errors import UsageError
from assay.model.hf import save_hf
from assay.store.trained_model import Trained, kept_parts, origin
from support.models import random_ids, random_model

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 8,
    "intermediate_size": 16,
    "vocab_size": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": [1, 2],
    "initializer_range": 0.3,
    "dtype": "bfloat16",
    "pretraining_tp": 1,
}
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 1,
    "n_head": 1,
    "n_embd": 8,
    "n_positions": 64,
    "vocab_size": 4,
    "resid_pdrop": 0.1,
    "eos_token_id": 3,
}
FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


def text_of(*words: str) -> str:
    library = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return str(library.to_str())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "tokenizer.json").write_text(json.dumps(json.loads(text_of("a", "b", "c")), indent=7))
    for name in FILES[1:]:
        (tmp_path / name).write_text("{ }  as they wrote it")
    (tmp_path / "README.md").write_text("of another model")
    return tmp_path


def started(folder: Path, **changes: object) -> ModelConfig:
    return config_from_hf(folder).model_copy(update={"init_from": str(folder), **changes})


def test_files_and_ids_stay_and_a_shorter_context_changes_nothing(folder: Path) -> None:
    changes = {"context_length": 16, "dropout": 0.2, "init_std": 0.02}
    found = kept_parts(started(folder, **changes), text_of("a", "b", "c"), "float32")
    assert set(found.kept) == set(FILES)
    assert all(found.files[name] == (folder / name).read_bytes() for name in FILES)
    assert found.files["config.json"] == {**LLAMA, "dtype": "float32"}
    assert found.differs == ('dtype "bfloat16" → "float32"',)


def test_settings_that_a_run_changed_are_in_the_configuration_and_printed(folder: Path) -> None:
    found = kept_parts(started(folder, context_length=128, tie_embeddings=True), text_of("a", "b", "c"), "bfloat16")
    values = found.files["config.json"]
    assert values == {**LLAMA, "max_position_embeddings": 128, "tie_word_embeddings": True}
    assert set(found.differs) == {"max_position_embeddings 64 → 128", "tie_word_embeddings null → true"}


def test_positions_that_were_cut_are_said(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(GPT2))
    found = kept_parts(started(folder, context_length=16), text_of("a", "b", "c"), "float32")
    assert found.files["config.json"] == {**GPT2, "n_positions": 16, "n_ctx": 16}


@pytest.mark.parametrize("text", [text_of("a", "c", "b"), None])
def test_another_tokenizer_takes_ids_and_templates_with_it(folder: Path, text: str | None) -> None:
    found = kept_parts(started(folder), text, "bfloat16")
    assert set(found.files) == {"config.json"}
    assert found.files["config.json"] == {**LLAMA, "bos_token_id": None, "eos_token_id": None}
    assert "the tokenizer, which is the run's own, without chat template" in found.differs[-1]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, False),
        ({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2}, "unk_token": "c"}}, False),
        ({"truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}}, True),
        ({"decoder": {"type": "Fuse"}}, True),
    ],
)
def test_a_tokenizer_is_the_runs_if_it_gives_the_same_ids(folder: Path, change: dict[str, object], same: bool) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = kept_parts(started(folder), text_of("a", "b", "c"), "bfloat16")
    assert bool(found.kept) is same
    assert any("tokenizer" in one for one in found.differs) is not same


def test_further_chat_templates_are_kept(folder: Path, tmp_path: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("theirs")
    found = kept_parts(started(folder), text_of("a", "b", "c"), "bfloat16")
    assert "additional_chat_templates/tools.jinja" in found.kept
    save_hf(random_model(started(folder)).state_dict(), started(folder), tmp_path / "out", found.files)
    assert (tmp_path / "out" / "additional_chat_templates" / "tools.jinja").read_text() == "theirs"


def test_a_run_that_began_with_none_keeps_none(tmp_path: Path) -> None:
    assert kept_parts(ModelConfig(), None, "float32").files == {}
    gone = ModelConfig(init_from=str(tmp_path / "gone"))
    assert origin(gone) is None
    assert "has no configuration of a checkpoint any more" in kept_parts(gone, None, "float32").differs[0]


def exported(folder: Path, out: Path, **values: object) -> dict[str, object]:
    """The configuration of an export whose context is 128, which transformers reads as the family of the folder."""
    transformers = pytest.importorskip("transformers")
    (folder / "config.json").write_text(json.dumps({**LLAMA, **values}))
    config = started(folder, context_length=128)
    model = random_model(config, std=0.2)
    kept = kept_parts(config, text_of("a", "b", "c"), "float32")
    save_hf(model.state_dict(), config, out, kept.files)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert theirs.config.model_type == values["model_type"]
    ids = random_ids(config, rows=2)
    torch.testing.assert_close(model.logits(ids), theirs(ids).logits, rtol=0, atol=1e-4)
    return dict(kept.files["config.json"])


def test_a_mistral_stays_one_and_its_window_does_not_reach_into_a_longer_context(folder: Path, tmp_path: Path) -> None:
    mistral = {"model_type": "mistral", "num_key_value_heads": 1}
    assert exported(folder, tmp_path / "out", sliding_window=64, **mistral)["sliding_window"] is None
    assert exported(folder, tmp_path / "none", sliding_window=None, **mistral)["sliding_window"] is None


def test_a_smollm_stays_one(folder: Path, tmp_path: Path) -> None:
    values = {"model_type": "llama", "tie_word_embeddings": True, "rope_interleaved": False, "is_llama_config": True}
    found = exported(folder, tmp_path / "out", **values)
    assert found.items() >= values.items()


def test_a_window_of_qwen2_does_not_reach_into_a_longer_context(folder: Path, tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0, "num_key_value_heads": 1}
    found = exported(folder, tmp_path / "out", model_type="qwen2", layer_types=["sliding_attention"] * 2, **window)
    assert (found["use_sliding_window"], found["layer_types"]) == (False, ["full_attention"] * 2)
    unused = {**window, "use_sliding_window": False}
    assert exported(folder, tmp_path / "plain", model_type="qwen2", **unused)["sliding_window"] == 64


def test_a_run_without_its_corpus_still_has_bytes_as_tokens_and_names_what_makes_others(tmp_path: Path) -> None:
    run = load("demo", ["data.path=my text.txt"])
    lonely = Trained("a-run", run.with_vocabulary().model, tmp_path, run, 3, tmp_path / "nothing")
    assert lonely.tokenizer().encode("aé").tolist() == [97, 195, 169]
    learnt = replace(lonely, trained_by=load("demo", ["data.path=my text.txt", "data.tokenizer=char"]))
    with pytest.raises(
        UsageError, match=r"corpus of a-run, .* data prepare .*data.path=.*my text.txt.* data.tokenizer=char`"
    ):
        learnt.tokenizer()
