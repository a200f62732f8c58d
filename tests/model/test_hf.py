"""Against transformers itself: the same logits and gradients in both directions."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf import config_from_hf
from assay.errors import UsageError
from assay.model import GPT
from assay.model.hf import load_hf, save_hf, to_hf
from assay.model.weights import load_model, save_weights
from support.models import random_ids, random_model, with_sdpa

transformers = pytest.importorskip("transformers")

SMALL = ModelConfig(n_layer=2, n_head=4, n_embd=32, context_length=12, vocab_size=61, activation="gelu_tanh")


def _theirs(seed: int = 0, **changes: object) -> torch.nn.Module:
    """A GPT-2 of theirs with every number random, dropout off."""
    values = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 12, "vocab_size": 61, **changes}
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(**values, **dropouts, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1 + centre)
    return model


def _ours(folder: Path, config: ModelConfig, core: str) -> GPT:
    model = GPT(config)
    model.load_state_dict(load_hf(folder, config), strict=not config.tie_embeddings)
    return with_sdpa(model) if core == "sdpa" else model


def _their_gradients(model: torch.nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """Of the mean loss of predicting each id from the ids reversed."""
    logits = model(ids).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flip(1).flatten()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _assert_same(ours: GPT, theirs: torch.nn.Module) -> None:
    """Logits to 1e-5 and gradients to 1e-4, both compared under their names."""
    ids = random_ids(ours.config, rows=3)
    torch.testing.assert_close(ours.logits(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    (ours(ids, ids.flip(1)) / ids.numel()).backward()
    gradients = to_hf({name: parameter.grad for name, parameter in ours.named_parameters()}, ours.config)
    expected = _their_gradients(theirs, ids)
    for name, gradient in expected.items():
        if ours.config.bias or not name.endswith(".bias"):
            torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-4, msg=name)
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 1e-2


@pytest.mark.parametrize("core", ["hand", "sdpa"])
@pytest.mark.parametrize("activation", ["gelu_new", "gelu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("tied", [True, False])
def test_their_model_is_ours(tmp_path: Path, core: str, activation: str, tied: bool) -> None:
    theirs = _theirs(activation_function=activation, tie_word_embeddings=tied, n_inner=None if tied else 40)
    theirs.save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    assert (config.n_layer, config.context_length, config.vocab_size, config.bias) == (2, 12, 61, True)
    assert config.hidden == (128 if tied else 40)
    _assert_same(_ours(tmp_path, config, core), theirs)


@pytest.mark.parametrize("core", ["hand", "sdpa"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_our_model_is_theirs(tmp_path: Path, core: str, bias: bool, tied: bool) -> None:
    config = SMALL.model_copy(
        update={"bias": bias, "tie_embeddings": tied, "activation": "gelu" if tied else "gelu_tanh"}
    )
    ours = random_model(config, std=0.1)
    save_hf(ours.state_dict(), config, tmp_path / "out")
    theirs, notes = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not notes["missing_keys"]
    assert not notes["unexpected_keys"]
    _assert_same(with_sdpa(ours) if core == "sdpa" else ours, theirs)


@pytest.mark.parametrize("bias", [True, False])
def test_out_and_back_is_bit_equal_with_its_configuration(tmp_path: Path, bias: bool) -> None:
    config = SMALL.model_copy(update={"bias": bias, "dropout": 0.25, "init_std": 0.01})
    state = random_model(config).state_dict()
    save_hf(state, config, tmp_path / "out")
    assert config_from_hf(tmp_path / "out") == config.model_copy(update={"n_hidden": config.hidden})
    for name, tensor in load_hf(tmp_path / "out", config).items():
        assert torch.equal(tensor, state[name]), name


def test_without_the_prefix_in_shards_and_in_half_precision(tmp_path: Path) -> None:
    theirs = _theirs()
    theirs.save_pretrained(tmp_path / "whole")
    expected = load_hf(tmp_path / "whole", SMALL)
    theirs.transformer.save_pretrained(tmp_path / "bare")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    for folder in ("bare", "shards"):
        loaded = load_hf(tmp_path / folder, SMALL)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())
    theirs.bfloat16().save_pretrained(tmp_path / "half")
    loaded = load_hf(tmp_path / "half", SMALL)
    assert all(torch.equal(loaded[name], tensor.bfloat16().float()) for name, tensor in expected.items())


def test_a_shorter_context_takes_the_first_positions_and_the_same_function(tmp_path: Path) -> None:
    theirs = _theirs()
    theirs.save_pretrained(tmp_path)
    short = SMALL.model_copy(update={"context_length": 5})
    ids = random_ids(short)
    torch.testing.assert_close(_ours(tmp_path, short, "hand").logits(ids), theirs(ids).logits, rtol=0, atol=1e-5)
    with pytest.raises(UsageError, match=r"set model\.context_length=12 \(now 13\)"):
        load_hf(tmp_path, SMALL.model_copy(update={"context_length": 13}))


def _rewrite(folder: Path, change: object) -> None:
    """Apply `change` to the tensors of a checkpoint folder."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_masks_and_a_copy_of_the_tied_weight_are_passed_over(tmp_path: Path) -> None:
    _theirs().save_pretrained(tmp_path)
    expected = load_hf(tmp_path, SMALL)

    def as_old_versions_wrote(tensors: dict[str, Tensor]) -> None:
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12)
        tensors["transformer.h.1.attn.masked_bias"] = torch.tensor(-1e4)
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()

    _rewrite(tmp_path, as_old_versions_wrote)
    assert load_hf(tmp_path, SMALL).keys() == expected.keys()
    _rewrite(tmp_path, lambda tensors: tensors["lm_head.weight"].add_(1))
    with pytest.raises(UsageError, match="tie_embeddings=false"):
        load_hf(tmp_path, SMALL)


def test_biases_may_be_absent_or_zero_where_the_model_has_none(tmp_path: Path) -> None:
    bare = SMALL.model_copy(update={"bias": False})
    save_hf(random_model(bare).state_dict(), bare, tmp_path / "out")
    expected = load_hf(tmp_path / "out", bare)
    name = "transformer.h.1.mlp.c_fc.bias"
    _rewrite(tmp_path / "out", lambda tensors: tensors.pop(name))
    assert load_hf(tmp_path / "out", bare).keys() == expected.keys()
    with pytest.raises(UsageError, match=r"no tensor 'h\.1\.mlp\.c_fc\.bias'"):
        load_hf(tmp_path / "out", SMALL)
    _rewrite(tmp_path / "out", lambda tensors: tensors.update({name: torch.full((128,), 1e-9)}))
    with pytest.raises(UsageError, match=r"'h\.1\.mlp\.c_fc\.bias' that is not zero; set model\.bias=true"):
        load_hf(tmp_path / "out", bare)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("transformer.h.0.ln_1.weight"), r"no tensor 'h\.0\.ln_1\.weight'"),
        (lambda t: t.update({"transformer.h.2.ln_1.weight": torch.ones(32)}), r"a tensor 'h\.2\.ln_1\.weight'"),
        (
            lambda t: t.update({"transformer.h.0.attn.c_attn.weight": torch.ones(96, 32)}),
            r"'h\.0\.attn\.c_attn\.weight' of shape \[96, 32\].*\[32, 96\]",
        ),
    ],
)
def test_a_wrong_tensor_is_named(tmp_path: Path, change: object, sentence: str) -> None:
    _theirs().save_pretrained(tmp_path)
    _rewrite(tmp_path, change)
    with pytest.raises(UsageError, match=sentence):
        load_hf(tmp_path, SMALL)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "mamba"}, "of type 'mamba'; only gpt2, llama, mistral, qwen2, qwen3"),
        ({"activation_function": "relu"}, "activation_function='relu'"),
        ({"layer_norm_epsilon": 0}, "norm_eps: Input should be greater than 0"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"n_layer": "two"}, "n_layer"),
        ({"n_head": 5}, "n_embd=32 is not divisible by n_head=5"),
    ],
)
def test_a_configuration_that_is_not_ours_is_refused(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    _theirs().save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(UsageError, match=sentence):
        config_from_hf(tmp_path)


def test_a_run_that_disagrees_is_told_what_to_set(tmp_path: Path) -> None:
    _theirs().save_pretrained(tmp_path)
    for change in ({"n_head": 2}, {"activation": "gelu"}, {"n_layer": 1}, {"tie_embeddings": False}, {"n_hidden": 40}):
        with pytest.raises(UsageError, match=rf"; set model\.{next(iter(change))}="):
            load_hf(tmp_path, SMALL.model_copy(update=change))


def test_files_that_are_missing_or_pickled_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        load_hf(tmp_path, SMALL)
    _theirs().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"has no model\.safetensors"):
        load_hf(tmp_path, SMALL)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    with pytest.raises(UsageError, match=r"pytorch_model\.bin is a pickle"):
        load_hf(tmp_path, SMALL)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"wte.weight": "../elsewhere.safetensors"}}))
    with pytest.raises(UsageError, match="does not list shards of this folder"):
        load_hf(tmp_path, SMALL)
    index.write_text(json.dumps({"weight_map": {"wte.weight": "lost.safetensors"}}))
    with pytest.raises(UsageError, match=r"lost\.safetensors is missing"):
        load_hf(tmp_path, SMALL)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(UsageError, match="not a JSON object"):
        load_hf(tmp_path, SMALL)


@pytest.mark.parametrize(
    "change",
    [
        {"position": "rotary"},
        {"norm": "rms"},
        {"activation": "swiglu"},
        {"n_kv_head": 2},
        {"qk_norm": True},
        {"logit_softcap": 5.0},
        {"norm_position": "post"},
    ],
)
def test_a_model_that_gpt2_cannot_express_is_refused_and_nothing_is_written(
    tmp_path: Path, change: dict[str, object]
) -> None:
    config = SMALL.model_copy(update=change)
    with pytest.raises(UsageError, match=f"GPT-2 cannot express model.{next(iter(change))}"):
        save_hf(random_model(config).state_dict(), config, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    save_weights(random_model(config).state_dict(), config, tmp_path / "out")
    assert load_model(tmp_path / "out", config).config == config
