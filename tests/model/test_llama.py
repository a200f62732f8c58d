"""Against transformers' Llama, Mistral, SmolLM2 and Qwens: the same logits, losses and gradients in both directions.

Their norms round to float32 and their rotations take powers in another order, which moves logits by 1e-7. So theirs get
a norm in full precision and our frequencies, and then the logits in float64 agree to 1e-10. A test of its own
holds the frequencies to theirs, and another compares logits in float32 with nothing replaced.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.config import ModelConfig, load
from assay.config.hf import config_from_hf
from assay.errors import UsageError
from assay.model import GPT
from assay.model.attention import Rotary
from assay.model.cache import KeyValueCache
from assay.model.hf import load_hf, save_hf, to_hf
from support.models import random_ids, random_model, with_sdpa

transformers = pytest.importorskip("transformers")

SHAPE = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "vocab_size": 61,
    "max_position_embeddings": 24,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SLOWED = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 12,
}
SMOLLM2 = {
    "hidden_size": 36,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rope_interleaved": False,
    "is_llama_config": True,
    "pretraining_tp": 1,
}
"""Shares and further keys of SmolLM and SmolLM2 (HuggingFaceTB/SmolLM2-135M, config.json)."""
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 500_000.0},
    "llama 3.1": {"model_type": "llama", "rope_theta": 500.0, "rope_scaling": SLOWED, "tie_word_embeddings": True},
    "llama with biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    "mistral": {"model_type": "mistral", "sliding_window": None, "rms_norm_eps": 1e-5, "rope_theta": 1e6},
    "mistral with wide heads": {"model_type": "mistral", "sliding_window": 24, "head_dim": 16},
    "smollm2": {"model_type": "llama", "tie_word_embeddings": True, "rope_theta": 1e5, **SMOLLM2},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1e6, "head_dim": 16, "tie_word_embeddings": True},
    "qwen3 untied": {"model_type": "qwen3", "head_dim": 10, "num_key_value_heads": 1, "rms_norm_eps": 1e-3},
}

ALONE = {"mistral": "llama", "mistral with wide heads": "llama"}
"""Family of a model without its file: what it computes is also a Llama."""


def _theirs(kind: str, seed: int = 0) -> Any:
    """A model of theirs with every number random."""
    config = transformers.AutoConfig.for_model(**deepcopy({**SHAPE, **KINDS[kind]}))  # it changes what it is given
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + centre)
    return model.eval()


def _exact(model: Any, config: ModelConfig) -> Any:
    """Return their model in float64 with norms in full precision and with our frequencies."""
    model = model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, own=module: F.rms_norm(x, own.weight.shape, own.weight, own.variance_epsilon)
    model.model.rotary_emb.inv_freq = Rotary.of(config).frequencies(config.head_dim)
    return model


def _ours(folder: Path, config: ModelConfig, core: str) -> GPT:
    model = GPT(config)
    model.load_state_dict(load_hf(folder, config), strict=not config.tie_embeddings)
    return with_sdpa(model) if core == "sdpa" else model


def _assert_same(ours: GPT, theirs: Any) -> None:
    """Compare logits and the loss in float64 to 1e-10, and each gradient under its name to 1e-9."""
    ids = random_ids(ours.config, rows=3)
    expected = theirs(input_ids=ids, labels=ids)
    torch.testing.assert_close(ours.logits(ids), expected.logits, rtol=0, atol=1e-10)
    loss = ours(ids[:, :-1], ids[:, 1:]) / ids[:, 1:].numel()
    torch.testing.assert_close(loss, F.cross_entropy(expected.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    assert loss.item() == pytest.approx(expected.loss.item(), rel=1e-6)  # theirs is computed in float32
    assert float(expected.logits.std()) > 1e-3
    loss.backward()
    gradients = to_hf({name: parameter.grad for name, parameter in ours.named_parameters()}, ours.config)
    wanted = F.cross_entropy(expected.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    names, parameters = zip(*theirs.named_parameters(), strict=True)
    for name, gradient in zip(names, torch.autograd.grad(wanted, parameters), strict=True):
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("core", ["hand", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_their_model_is_ours(tmp_path: Path, kind: str, core: str) -> None:
    theirs = _theirs(kind)
    theirs.save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    assert config.context_length == 24
    assert config.qk_norm == kind.startswith("qwen3")
    assert config.has_qkv_bias == (kind in ("qwen2", "llama with biases"))
    _assert_same(_ours(tmp_path, config, core).double(), _exact(theirs, config))


@pytest.mark.parametrize("kind", KINDS)
def test_their_model_is_ours_in_float32_with_nothing_replaced(tmp_path: Path, kind: str) -> None:
    theirs = _theirs(kind)
    theirs.save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    ids = random_ids(config, rows=3)
    torch.testing.assert_close(_ours(tmp_path, config, "hand").logits(ids), theirs(ids).logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_our_model_is_theirs(tmp_path: Path, kind: str) -> None:
    _theirs(kind).save_pretrained(tmp_path / "given")
    config = config_from_hf(tmp_path / "given")
    ours = random_model(config, seed=3, std=0.2)
    save_hf(ours.state_dict(), config, tmp_path / "out")
    theirs, notes = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert theirs.config.model_type == ALONE.get(kind, KINDS[kind]["model_type"])
    assert not notes["missing_keys"]
    assert not notes["unexpected_keys"]
    _assert_same(ours.double(), _exact(theirs.eval(), config))


@pytest.mark.parametrize("kind", KINDS)
def test_out_and_back_is_bit_equal_with_its_configuration(tmp_path: Path, kind: str) -> None:
    _theirs(kind).save_pretrained(tmp_path / "given")
    config = config_from_hf(tmp_path / "given")
    state = random_model(config).state_dict()
    save_hf(state, config, tmp_path / "out")
    back = config_from_hf(tmp_path / "out")
    assert back.model_copy(update={"n_head_dim": config.n_head_dim}) == config
    assert back.head_dim == config.head_dim
    for name, tensor in load_hf(tmp_path / "out", config).items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("preset", ["llama-3.2-1b", "llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b"])
def test_frequencies_are_theirs(preset: str) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    model = load(preset).model
    scaling = {**SLOWED, "factor": model.rotary_factor, "original_max_position_embeddings": model.rotary_context}
    slowed = model.rotary_factor != 1.0
    config = transformers.LlamaConfig(
        **{**SHAPE, "max_position_embeddings": 131_072},
        head_dim=model.head_dim,
        rope_theta=model.rotary_base,
        rope_scaling=scaling if slowed else None,
    )
    initial = ROPE_INIT_FUNCTIONS["llama3"] if slowed else _plain
    theirs, _ = initial(config, None)
    torch.testing.assert_close(Rotary.of(model).frequencies(model.head_dim), theirs, rtol=1e-6, atol=0)
    plain, _ = _plain(config, None)
    assert torch.equal(plain, theirs) != slowed


def _plain(config: Any, device: object) -> tuple[Tensor, float]:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding.compute_default_rope_parameters(config)


def test_slowed_rotations_keep_fast_ones_and_divide_slow_ones() -> None:
    plain, slowed = (Rotary(64, 10_000.0, factor, 100).frequencies(16).double() for factor in (1.0, 8.0))
    turns = 100 * plain / (2 * torch.pi)
    torch.testing.assert_close(slowed[turns > 4], plain[turns > 4])
    torch.testing.assert_close(slowed[turns < 1], plain[turns < 1] / 8)
    between = (turns > 1) & (turns < 4)
    assert between.any()
    assert (plain[between] / 8 < slowed[between]).all()
    assert (slowed[between] < plain[between]).all()


@pytest.mark.parametrize("kind", ["llama 3.1", "qwen2", "qwen3"])
def test_an_imported_model_generates_with_a_cache_what_it_computes_without(tmp_path: Path, kind: str) -> None:
    _theirs(kind).save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    model = _ours(tmp_path, config, "hand").double().eval()
    ids = random_ids(config, rows=2)
    cache = KeyValueCache(model, 2)
    for first, last in ((0, 7), (7, 8), (8, 24)):
        found = cache.logits(ids[:, first:last].tolist())
        torch.testing.assert_close(found, model.logits(ids[:, :last])[:, -1].detach(), rtol=1e-12, atol=1e-12)
    assert cache.nbytes == 2 * 24 * 2 * config.n_layer * config.kv_heads * config.head_dim * 8


def test_a_copy_of_the_tied_weight_and_old_frequencies_are_passed_over(tmp_path: Path) -> None:
    """Qwen3-0.6B has the output projection twice, and old Llamas have their frequencies."""
    _theirs("qwen3").save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    expected = load_hf(tmp_path, config)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert load_hf(tmp_path, config).keys() == expected.keys()
    tensors["lm_head.weight"] += 1
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match="tie_embeddings=false"):
        load_hf(tmp_path, config)
    untied = load_hf(tmp_path, config.model_copy(update={"tie_embeddings": False}))  # and what it says works
    assert torch.equal(untied["head.projection.weight"], tensors["lm_head.weight"])


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        ("llama", {"hidden_act": "gelu"}, "hidden_act='gelu'; only 'silu'"),
        ("llama", {"mlp_bias": True}, "has mlp_bias=true without attention_bias"),
        ("llama", {"attention_bias": True}, "has attention_bias=true without mlp_bias"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type='yarn'; only 'default' and 'llama3'"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ("llama 3.1", {"rope_parameters": {**SLOWED, "low_freq_factor": 2.0}}, "low_freq_factor=2.0; only 1.0"),
        ("llama", {"hidden_size": None}, "has no hidden_size"),
        ("llama", {"rope_parameters": {**SLOWED, "factor": 0.5}}, "rotary_factor"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1, "layer_types": None}, "use_sliding_window=True"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types='sliding_attention'"),
        ("mistral", {"sliding_window": 23}, "sliding_window=23, which is .* write max_position_embeddings=23 into it"),
        ("mistral", {"attention_bias": True}, "attention_bias=True; only False"),
        (
            "llama",
            {"model_type": "smollm3", "no_rope_layers": [1, 0]},
            "'smollm3', in which some layers have no rotary",
        ),
        (
            "qwen2",
            {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Both"}},
            r"code of its own for its model \(own.Both\), .* than a qwen2, .* take auto_map out of the file",
        ),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "both rope_scaling and rope_parameters"),
        ("llama", {"rope_parameters": "llama3"}, "rope_parameters='llama3', which is no object"),
        ("llama 3.1", {"original_max_position_embeddings": 5}, "two values of original_max_position_embeddings"),
        ("qwen2", {"layer_types": 5}, "layer_types=5, which is no list"),
        ("qwen3", {"attention_bias": True}, "attention_bias=True; only False"),
        ("qwen3", {"num_key_value_heads": 3}, "n_head=4 is not divisible by n_kv_head=3"),
    ],
)
def test_a_configuration_that_is_not_ours_is_refused(
    tmp_path: Path, kind: str, change: dict[str, object], sentence: str
) -> None:
    _theirs(kind).config.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, **change}))
    with pytest.raises(UsageError, match=sentence):
        config_from_hf(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"max_window_layers": 2, "layer_types": None},
        {"max_window_layers": 0, "layer_types": None, "sliding_window": 24},
        {"max_window_layers": 0, "layer_types": ["full_attention"] * 2},
    ],
    ids=["behind-the-last-layer", "as-long-as-the-context", "listed-layers"],
)
def test_a_window_that_reaches_no_layer_is_read(tmp_path: Path, change: dict[str, object]) -> None:
    theirs = _theirs("qwen2")
    theirs.save_pretrained(tmp_path)
    plain = config_from_hf(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**values, "use_sliding_window": True, "sliding_window": 8, **change})
    )
    assert config_from_hf(tmp_path) == plain
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = random_ids(plain, rows=2)
    torch.testing.assert_close(again(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize(("kind", "change"), [("mistral", {}), ("qwen2", {"use_sliding_window": True})])
def test_a_context_beyond_a_window_is_refused(tmp_path: Path, kind: str, change: dict[str, object]) -> None:
    _theirs(kind).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    change = {"max_window_layers": 0, "layer_types": None, "sliding_window": 24, **change}
    (tmp_path / "config.json").write_text(json.dumps({**values, **change, "max_position_embeddings": 24}))
    config = config_from_hf(tmp_path)
    assert load_hf(tmp_path, config)
    with pytest.raises(UsageError, match=r"shorter than a context of 25, .* set model\.context_length=24"):
        load_hf(tmp_path, config.model_copy(update={"context_length": 25}))


def test_an_origin_of_slowed_rotations_may_stand_beside_them(tmp_path: Path) -> None:
    _theirs("llama 3.1").save_pretrained(tmp_path)
    plain = config_from_hf(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["original_max_position_embeddings"] = values["rope_parameters"].pop("original_max_position_embeddings")
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert config_from_hf(tmp_path) == plain
    assert transformers.AutoConfig.from_pretrained(tmp_path).rope_parameters["factor"] == plain.rotary_factor


def test_a_qwen2_ignores_a_key_for_biases_as_theirs_does(tmp_path: Path) -> None:
    _theirs("qwen2").save_pretrained(tmp_path)
    plain = config_from_hf(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "attention_bias": True}))
    assert config_from_hf(tmp_path) == plain


def test_a_tensor_with_and_without_the_prefix_is_refused(tmp_path: Path) -> None:
    _theirs("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["norm.weight"] = tensors["model.norm.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=r"'norm\.weight' twice, with and without 'model\.'"):
        load_hf(tmp_path, config_from_hf(tmp_path))


def test_keys_that_a_mistral_file_lacks_mean_what_they_mean_to_transformers(tmp_path: Path) -> None:
    _theirs("mistral").config.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    for name in ("sliding_window", "num_key_value_heads", "rms_norm_eps", "max_position_embeddings"):
        del values[name]
    values |= {"num_attention_heads": 16, "head_dim": None}
    (tmp_path / "config.json").write_text(json.dumps(values))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match=f"has sliding_window={theirs.sliding_window}"):
        config_from_hf(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**values, "sliding_window": None}))
    ours = config_from_hf(tmp_path)
    assert (ours.kv_heads, ours.head_dim) == (theirs.num_key_value_heads, theirs.head_dim)
    assert (ours.norm_eps, ours.context_length) == (theirs.rms_norm_eps, theirs.max_position_embeddings)


def test_code_of_a_checkpoint_for_its_tokenizer_alone_changes_no_model(tmp_path: Path) -> None:
    _theirs("llama").config.save_pretrained(tmp_path)
    plain = config_from_hf(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    for named in ({"AutoTokenizer": ["own.Tokens", None]}, "own.Both", None):
        (tmp_path / "config.json").write_text(json.dumps({**values, "auto_map": named}))
        assert config_from_hf(tmp_path) == plain


def test_keys_of_older_versions_of_transformers_mean_the_same(tmp_path: Path) -> None:
    _theirs("llama 3.1").config.save_pretrained(tmp_path)
    expected = config_from_hf(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["rope_parameters"]
    old = {"rope_theta": 500.0, "rope_scaling": {**SLOWED, "type": SLOWED["rope_type"]}}
    (tmp_path / "config.json").write_text(json.dumps({**values, **old}))
    assert config_from_hf(tmp_path) == expected
    assert (expected.rotary_factor, expected.rotary_context, expected.rotary_base) == (8.0, 12, 500.0)


def test_a_run_that_disagrees_is_told_what_to_set(tmp_path: Path) -> None:
    _theirs("qwen3").save_pretrained(tmp_path)
    config = config_from_hf(tmp_path)
    for change in (
        {"n_head_dim": 8},
        {"norm_eps": 1e-5},
        {"rotary_base": 1e4},
        {"rotary_factor": 8.0},
        {"bias": True},
        {"qkv_bias": True},
        {"qk_norm": False},
    ):
        with pytest.raises(UsageError, match=rf"; set .*model\.{next(iter(change))}="):
            load_hf(tmp_path, config.model_copy(update=change))
    load_hf(tmp_path, config.model_copy(update={"context_length": 6, "rotary_context": 77}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"norm_position": "post"}, r"Llama cannot express model\.norm_position=post"),
        ({"n_expert": 2}, r"Llama cannot express model\.n_expert=2"),
        ({"qk_norm": True, "qkv_bias": True}, r"Qwen3 cannot express model\.qkv_bias=true"),
        ({"qk_norm": True, "bias": True}, r"Qwen3 cannot express model\.bias=true"),
        ({"bias": True, "qkv_bias": False}, r"Qwen2 cannot express model\.bias=true"),
    ],
)
def test_a_model_that_none_of_them_can_express_is_refused(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    config = load("llama-tiny", ["model.vocab_size=61"]).model.model_copy(update=change)
    with pytest.raises(UsageError, match=sentence):
        save_hf(random_model(config).state_dict(), config, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
