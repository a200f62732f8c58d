"""What a run starts from is looked through before anything starts, and nothing of it needs torch."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from assay import api
from assay.config import Home, ModelConfig, Run, load, validate
from assay.config.hf import config_from_hf
from assay.config.hf.tensors import naming_of
from assay.cost.gpt_tape import parameters
from assay.errors import UsageError
from assay.launch import prepare
from assay.launch.prepare import check_finite, ready, with_initial_shape, with_initial_weights
from assay.launch.spawn import start
from support.children import Fake, make_ready

SMALL = ModelConfig(n_layer=2, n_head=2, n_embd=8, context_length=12, vocab_size=256, n_hidden=20, bias=False)
HF = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 8,
    "n_positions": 12,
    "vocab_size": 300,
    "activation_function": "gelu_new",
}
QWEN = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "vocab_size": 300,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
}


def asked(source: Path | str, **model: Any) -> Run:
    return validate({"model": {"init_from": str(source), **model}})


def exported(folder: Path, config: ModelConfig = SMALL) -> Path:
    """A folder as `assay export --format safetensors` writes it."""
    folder.mkdir()
    (folder / "config.json").write_text(config.model_dump_json(exclude={"init_from"}))
    tensors = {name: np.zeros(tensor.shape, np.float32) for name, tensor in parameters(config).items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def hugging_face(folder: Path, **values: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**HF, **values}))
    save_file(theirs(folder), folder / "model.safetensors")
    return folder


def theirs(folder: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Every tensor of the checkpoint whose configuration is in a folder."""
    config = config_from_hf(folder)
    naming = naming_of(config)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, tensor in parameters(config).items():
        shapes |= naming.shapes(name, tensor.shape, config)
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def test_nothing_named_is_nothing_changed(home: Home) -> None:
    run = validate({})
    assert with_initial_weights(run, home) is run


def test_a_shape_that_nobody_set_is_the_checkpoints(home: Home, tmp_path: Path) -> None:
    folder = exported(tmp_path / "made")
    model = with_initial_weights(asked(folder), home).model
    assert model == SMALL.model_copy(update={"init_from": str(folder)})
    assert with_initial_weights(asked(folder, dropout=0.1, n_layer=2), home).model.dropout == 0.1
    theirs = with_initial_weights(asked(hugging_face(tmp_path / "hf")), home).model
    assert (theirs.n_layer, theirs.vocab_size, theirs.activation, theirs.dropout) == (2, 300, "gelu_tanh", 0.0)


def test_a_llama_s_shape_replaces_that_of_another_preset(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    save_file({f"model.{name}": one for name, one in theirs(folder).items()}, folder / "model.safetensors")
    model = with_initial_weights(load("gpt2-124m", [f"model.init_from={folder}", "model.context_length=8"]), home).model
    assert (model.position, model.norm, model.activation, model.qk_norm) == ("rotary", "rms", "swiglu", True)
    assert (model.head_dim, model.kv_heads, model.norm_eps, model.context_length) == (16, 2, 1e-6, 8)
    with pytest.raises(UsageError, match=r"set model\.n_head_dim=16 model\.norm_eps=1e-06 \(now 8, 1e-05\)"):
        with_initial_weights(asked(folder, n_head_dim=8, norm_eps=1e-5), home)


def test_every_mismatch_is_listed_with_what_to_set(home: Home, tmp_path: Path) -> None:
    for folder in (exported(tmp_path / "made"), hugging_face(tmp_path / "hf")):
        with pytest.raises(UsageError) as error:
            with_initial_weights(asked(folder, n_layer=3, n_head=4, norm="rms", context_length=64), home)
        assert "set model.n_layer=2 model.n_head=2" in str(error.value)
        for wanted in ("model.norm=layer", "model.context_length=12"):
            assert wanted in str(error.value)
        assert "(now 3, 4, " in str(error.value)


def test_checkpoints_of_hugging_face_go_with_the_runs_that_they_allow(home: Home, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    assert with_initial_weights(asked(folder, context_length=5, bias=False), home).model.context_length == 5
    with pytest.raises(UsageError, match=r"set model\.context_length=12 \(now 5\)"):
        with_initial_weights(asked(exported(tmp_path / "made"), context_length=5), home)


def test_a_tokenizer_that_is_not_the_checkpoints_is_named(home: Home, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("words, and more of them. " * 100)
    folder = exported(tmp_path / "made", SMALL.model_copy(update={"vocab_size": 92}))
    run = load(None, [f"model.init_from={folder}", f"data.path={tmp_path / 'text.txt'}"])
    with pytest.raises(UsageError, match=r"give the tokenizer of model\.init_from"):
        ready(run, home)


def test_tensors_that_do_not_fit_are_listed(home: Home, tmp_path: Path) -> None:
    folder = exported(tmp_path / "made", SMALL)
    tensors = {name: np.zeros(one.shape, np.float32) for name, one in parameters(SMALL).items()}
    tensors["embedding.token.weight"] = np.zeros((3, 8), np.float32)
    del tensors["head.norm.weight"]
    save_file(tensors | {"other": np.zeros(1, np.float32)}, folder / "model.safetensors")
    with pytest.raises(UsageError) as error:
        with_initial_weights(asked(folder), home)
    for part in ("is 3×8 and should be 256×8", "head.norm.weight is missing", "other is not part of the model"):
        assert part in str(error.value)


@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
def test_a_checkpoint_that_cannot_be_read_is_refused_before_the_run(home: Home, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    values = HF if kind == "gpt2" else {**QWEN, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(values))
    tensors = theirs(folder)
    last = list(tensors)[-1]
    for change, says in (
        ({last: None}, f"{last} is missing"),
        ({"score.weight": np.zeros((2, 8), np.float32)}, "score.weight is not part of the model"),
        ({last: np.zeros((3, 3), np.float32)}, f"{last} is 3×3 and should be"),
        ({"lm_head.weight": np.ones_like(tensors[next(iter(tensors))])}, "set model.tie_embeddings=false"),
    ):
        changed = {name: one for name, one in {**tensors, **change}.items() if one is not None}
        save_file(changed, folder / "model.safetensors")
        with pytest.raises(UsageError, match=re.escape(says)):
            with_initial_weights(asked(folder), home)
    model = with_initial_weights(asked(folder, tie_embeddings=False), home).model
    assert not model.tie_embeddings
    equal = {"lm_head.weight": np.zeros_like(tensors[next(iter(tensors))])}
    save_file(tensors | equal, folder / "model.safetensors")
    assert with_initial_weights(asked(folder), home).model.tie_embeddings


def test_shards_are_those_that_the_index_lists(home: Home, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    tensors = theirs(folder)
    parts = dict(zip(tensors, ["a.safetensors", "b.safetensors"] * len(tensors), strict=False))
    for part in set(parts.values()):
        save_file({name: one for name, one in tensors.items() if parts[name] == part}, folder / part)
    save_file({"other": np.zeros(1, np.float32)}, folder / "consolidated.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert with_initial_weights(asked(folder), home).model.n_layer == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model.bin", "pytorch_model.bin is a pickle"),
        ("adapter_config.json", "it is an adapter; merge it"),
        ("model-q4_0.gguf", "model-q4_0.gguf is a GGUF file"),
    ],
)
def test_a_folder_without_weights_that_can_be_read_says_what_it_has(
    home: Home, tmp_path: Path, name: str, says: str
) -> None:
    folder = hugging_face(tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"never opened")
    with pytest.raises(UsageError, match=says):
        with_initial_weights(asked(folder), home)


def test_an_adapter_is_no_model_although_it_has_safetensors(home: Home, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"lora_A.weight": np.zeros((2, 2), np.float32)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UsageError, match="it is an adapter; merge it"):
        with_initial_weights(asked(tmp_path), home)


def test_weights_without_a_configuration_are_compared_once_the_vocabulary_is_known(home: Home, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("words, and more of them. " * 100)
    folder = exported(tmp_path / "made")
    (folder / "config.json").unlink()
    small = ("n_layer=2", "n_head=2", "n_embd=8", "context_length=12", "n_hidden=20", "bias=false")
    shape = [f"model.{one}" for one in small]
    text = [f"data.path={tmp_path / 'text.txt'}", "data.tokenizer=bpe", "data.bpe_vocab_size=258"]
    with pytest.raises(UsageError, match=r"embedding\.token\.weight is 256×8 and should be 258×8"):
        ready(load(None, [f"model.init_from={folder}", *shape, *text]), home)


@pytest.mark.parametrize(("value", "zero"), [(0.0, True), (-0.0, True), (1e-40, False), (-1.0, False)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_biases_that_the_configuration_denies_must_be_zero_before_a_run(
    home: Home, tmp_path: Path, value: float, zero: bool, dtype: type
) -> None:
    folder = hugging_face(tmp_path / "hf", bias=False)
    biases = {"h.0.ln_1.bias": np.zeros(8, dtype), "h.1.mlp.c_proj.bias": np.full(8, value, dtype)}
    if dtype is np.float16 and value == 1e-40:
        biases["h.1.mlp.c_proj.bias"][3] = 6e-8  # the smallest number of float16
    save_file(theirs(folder) | biases, folder / "model.safetensors")
    if zero:
        assert not with_initial_weights(asked(folder), home).model.bias
        return
    with pytest.raises(UsageError, match=r"a bias 'h\.1\.mlp\.c_proj\.bias' that is not zero; set model\.bias=true"):
        with_initial_weights(asked(folder), home)


@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
@pytest.mark.parametrize("before", ["_orig_mod.", "module.", "_orig_mod.model."])
def test_names_of_a_wrapped_model_are_said_in_place_of_a_list(
    home: Home, tmp_path: Path, kind: str, before: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HF if kind == "gpt2" else QWEN))
    save_file({f"{before}{name}": one for name, one in theirs(tmp_path).items()}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"names of .* begin with '(_orig_mod|module)..*; save the model inside it"):
        with_initial_weights(asked(tmp_path), home)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_weights_that_are_rounded_for_inference_are_refused(home: Home, tmp_path: Path, dtype: type) -> None:
    folder = hugging_face(tmp_path / "hf")
    tensors = theirs(folder)
    save_file({**tensors, "h.0.attn.bias": np.zeros((1, 1), np.uint8)}, folder / "model.safetensors")
    assert with_initial_weights(asked(folder), home).model.n_layer == 2  # a mask that old versions wrote
    name = "h.1.mlp.c_fc.weight"
    save_file({**tensors, name: tensors[name].astype(dtype)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=rf"has {name} in [IU]\d+, rounded for inference"):
        with_initial_weights(asked(folder), home)


def test_files_that_cannot_be_read(home: Home, tmp_path: Path) -> None:
    folder = exported(tmp_path / "made")
    whole = (folder / "model.safetensors").read_bytes()
    for content in (b"", whole[:-1], b"\xff" * 100):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(UsageError, match="not a readable safetensors file"):
            with_initial_weights(asked(folder), home)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"without \.safetensors"):
        with_initial_weights(asked(folder), home)


def test_a_run_is_its_newest_checkpoint_and_its_model(home: Home, fake: Fake) -> None:
    with pytest.raises(UsageError, match="neither a folder nor a run"):
        with_initial_weights(asked("2026"), home)
    with start(make_ready(home), home) as child:
        child.result()
    place = child.folder.checkpoints / "step-00000006"
    for source in (child.folder.id[:-1], str(place)):
        (place / "model.safetensors").touch()
        tensors = {
            name: np.zeros(one.shape, np.float32) for name, one in parameters(make_ready(home).run.model).items()
        }
        save_file(tensors, place / "model.safetensors")
        model = with_initial_weights(asked(source), home).model
        assert (model.init_from, model.n_layer, model.n_embd) == (str(place), 1, 8)
    with pytest.raises(UsageError, match=r"set model\.n_layer=1 \(now 4\)"):
        with_initial_weights(asked("last", n_layer=4), home)


def test_a_run_that_saved_nothing(home: Home, fake: Fake) -> None:
    fake.behaves("die1")
    with start(make_ready(home), home) as child:
        child.result()
    with pytest.raises(UsageError, match="has no checkpoint"):
        with_initial_weights(asked("last"), home)


def test_no_torch_is_needed(tmp_path: Path) -> None:
    folder = exported(tmp_path / "made")
    code = f"""
import sys, assay
shape = ("model.n_layer=2", "model.n_head=2", "model.n_embd=8", "model.context_length=12")
print(assay.estimate("model.init_from={folder}", *shape).cost.parameter_bytes)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_configuration_is_enough_for_a_prediction(home: Home, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "model")
    whole = with_initial_shape(asked(folder), home)
    assert whole == with_initial_weights(asked(folder), home)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    assert with_initial_shape(asked(folder), home).model == whole.model
    with pytest.raises(UsageError, match=r"a folder without \.safetensors files"):
        with_initial_weights(asked(folder), home)


@pytest.mark.parametrize(
    ("dtype", "value", "other"), [("F32", np.nan, 0.0), ("F16", np.inf, 65504.0), ("F64", -np.inf, 1e308)]
)
def test_weights_that_are_no_numbers_are_refused_before_the_run(
    home: Home, tmp_path: Path, dtype: str, value: float, other: float
) -> None:
    (tmp_path / "text.txt").write_text("words, and more of them. " * 100)
    kind = {"F32": np.float32, "F16": np.float16, "F64": np.float64}[dtype]
    tensors = {name: np.full(one.shape, other, kind) for name, one in parameters(SMALL).items()}
    folder = exported(tmp_path / "made")
    save_file(tensors, folder / "model.safetensors")
    run = load(None, [f"model.init_from={folder}", f"data.path={tmp_path / 'text.txt'}", "data.tokenizer=byte"])
    assert ready(run, home).run.model.init_from == str(folder)
    tensors["blocks.1.mlp.up.weight"][3, 5:7] = value
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"^blocks\.1\.mlp\.up\.weight is NaN or infinite in 2 of 160 numbers in "):
        ready(run, home)


def test_weights_are_read_once_for_all_cells_and_again_when_they_are_written(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(prepare, "non_finite_in", lambda tensors: read.append("read") or "")
    folder = exported(tmp_path / "made")
    run = with_initial_weights(load(None, [f"model.init_from={folder}", "data.tokenizer=byte"]), home)
    for _ in range(3):
        check_finite(run)
    assert read == ["read"]
    file = folder / "model.safetensors"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    check_finite(run)
    assert read == ["read", "read"]


def test_bfloat16_has_its_own_exponent(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save

    from assay.launch.tensor_files import non_finite_in, tensors_in

    largest = torch.finfo(torch.bfloat16).max
    one = torch.tensor([0.0, -largest, largest, 1e-40], dtype=torch.bfloat16)
    save({"a": one, "b": torch.arange(3)}, tmp_path / "x.safetensors")
    assert non_finite_in(tensors_in([tmp_path / "x.safetensors"])) == ""
    save({"a": one, "b": one * 4}, tmp_path / "x.safetensors")
    assert non_finite_in(tensors_in([tmp_path / "x.safetensors"])) == "b is NaN or infinite in 2 of 4 numbers"


def test_old_masks_of_gpt2_are_no_weights(home: Home, tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "hf")
    minus = {"h.0.attn.masked_bias": np.array(-np.inf, np.float32)}
    save_file(theirs(folder) | minus, folder / "model.safetensors")
    check_finite(with_initial_weights(asked(folder), home))


def test_a_comparison_is_refused_before_this_machine_is_measured(home: Home, tmp_path: Path) -> None:
    folder = exported(tmp_path / "made")
    tensors = {name: np.full(one.shape, np.nan, np.float32) for name, one in parameters(SMALL).items()}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UsageError, match="is NaN or infinite in"):
        api.compare(f"model.init_from={folder}", "data.tokenizer=byte", home=home)
    assert not list(home.root.rglob("machine.json"))
