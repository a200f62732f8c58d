import errno
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from assay.config import ModelConfig
from assay.errors import StorageError, UsageError
from assay.model import GPT
from assay.model.weights import (
    check_state,
    load_model,
    new_folder,
    parameter_shapes,
    read_safetensors,
    save_weights,
    write_safetensors,
)
from support.models import VOCABULARY, configurations, random_ids, random_model

SMALL = ModelConfig(n_layer=1, n_head=2, n_embd=8, context_length=4, vocab_size=VOCABULARY)


@settings(max_examples=20, deadline=None)
@given(configurations())
def test_a_saved_state_is_loaded_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> None:
    folder = tmp_path_factory.mktemp("weights") / "out"
    model = random_model(config)
    save_weights(model.state_dict(), config, folder)
    loaded = load_model(folder, config)
    ids = random_ids(config)
    assert torch.equal(loaded.logits(ids), model.eval().logits(ids))
    assert loaded.training is False
    assert dict(loaded.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert ModelConfig.model_validate(json.loads((folder / "config.json").read_text())) == config


def test_a_tied_weight_is_written_once_and_tied_again(tmp_path: Path) -> None:
    save_weights(random_model(SMALL).state_dict(), SMALL, tmp_path / "out")
    assert "head.projection.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    model = load_model(tmp_path / "out", SMALL)
    assert model.head.projection.weight is model.embedding.token.weight
    assert model.embedding.token.weight.requires_grad


def test_shapes_take_no_memory_and_are_those_of_the_model() -> None:
    huge = ModelConfig(n_layer=1, n_head=8, n_embd=8 * 2**14, vocab_size=2**30)
    assert parameter_shapes(huge)["embedding.token.weight"] == (2**30, 2**17)
    assert parameter_shapes(SMALL) == {name: p.shape for name, p in GPT(SMALL).named_parameters()}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_embd": 16}, r"embedding\.token\.weight"),
        ({"n_layer": 2}, r"blocks\.1\.attention_norm\.weight"),
        ({"bias": False}, r"blocks\.0\..*\.bias"),
        ({"tie_embeddings": False}, r"head\.projection\.weight"),
    ],
)
def test_another_configuration_is_refused_by_the_tensor_that_differs(
    tmp_path: Path, change: dict[str, int], named: str
) -> None:
    save_weights(random_model(SMALL).state_dict(), SMALL, tmp_path / "out")
    with pytest.raises(UsageError, match=named):
        load_model(tmp_path / "out", SMALL.model_copy(update=change))


def test_an_alias_of_an_untied_model_is_no_alias() -> None:
    untied = SMALL.model_copy(update={"tie_embeddings": False})
    state = random_model(untied).state_dict()
    assert "head.projection.weight" in check_state(state, untied, "here")
    assert "head.projection.weight" not in check_state(state, SMALL, "here")


def test_files_that_are_no_safetensors_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is missing"):
        read_safetensors(tmp_path / "model.safetensors")
    torch.save({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="not a readable safetensors file"):
        read_safetensors(tmp_path / "model.safetensors")
    save_file({"a": torch.ones(1000)}, tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(UsageError, match="not a readable safetensors file"):
        read_safetensors(tmp_path / "model.safetensors")


def test_weights_have_the_mode_of_any_new_file(tmp_path: Path) -> None:
    write_safetensors({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    (tmp_path / "new").touch()
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    for error, kind in ((RuntimeError(), RuntimeError), (OSError(errno.ENOSPC, "No space left"), StorageError)):
        with pytest.raises(kind):
            _write_half(tmp_path / "out", error)
        assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(StorageError, match=r"could not be written: No space left on device$") as raised:
        save_weights(random_model(SMALL).state_dict(), SMALL, tmp_path / "out")
    assert raised.value.__cause__.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def _write_half(folder: Path, error: Exception) -> None:
    with new_folder(folder) as made:
        (made / "half").write_text("x")
        raise error


def test_an_empty_folder_is_taken_and_any_other_is_kept(tmp_path: Path) -> None:
    state = random_model(SMALL).state_dict()
    (tmp_path / "empty").mkdir()
    before = (tmp_path / "empty").stat().st_ino
    save_weights(state, SMALL, tmp_path / "empty")
    assert (tmp_path / "empty").stat().st_ino == before
    assert sorted(path.name for path in (tmp_path / "empty").iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(UsageError, match="not an empty folder"):
        save_weights(state, SMALL, tmp_path / "empty")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match="not an empty folder"):
        save_weights(state, SMALL, tmp_path / "file")
    with pytest.raises(UsageError, match="name another folder"):
        save_weights(state, SMALL, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "kept"
