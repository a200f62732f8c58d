"""Models, texts and tables as other people have them, made from nothing: tiny, random, and by the libraries they use.

A folder gets them all: `input.txt`, a folder for each checkpoint, texts and tables. Nothing here knows assay.
"""

import bz2
import csv
import gzip
import io
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY, CONTEXT = 512, 64
_WEIGHTS = "model.safetensors"
_GPT2 = {"vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_embd": 48, "n_layer": 2, "n_head": 4}
_LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
_SMOLLM = {"hidden_size": 54, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 144}
_ROPE = {"rope_theta": 10000.0, "original_max_position_embeddings": 16, "factor": 8.0}
_LLAMA3 = {**_ROPE, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
Tensors = dict[str, torch.Tensor]


def make(place: Path) -> None:
    """Make all files in a folder."""
    text = subprocess.run(
        [sys.executable, "-m", "pydoc", "builtins"], capture_output=True, text=True, check=True
    ).stdout
    (place / "input.txt").write_text(text)
    checkpoints(place, tokenizer(text))
    texts(place, text)
    tables(place)


def tokenizer(text: str) -> Any:
    """Return a byte-level BPE of 500 tokens, as transformers keeps one."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    end = "<|endoftext|>"
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=[end], initial_alphabet=alphabet)
    found.train_from_iterator([text[:200_000]], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=found, eos_token=end, bos_token=end)


def checkpoints(place: Path, words: Any) -> None:
    """Make checkpoints of eleven shapes, and those that a wrapper, a quantization or a hand has changed."""
    of = transformers
    made: dict[str, tuple[Any, Any]] = {
        "gpt2": (of.GPT2LMHeadModel, of.GPT2Config(**_GPT2)),
        "qwen2": (of.Qwen2ForCausalLM, _window(2)),
        "qwen2-window": (of.Qwen2ForCausalLM, _window(1)),
        "qwen3": (of.Qwen3ForCausalLM, of.Qwen3Config(**_LLAMA, head_dim=16, tie_word_embeddings=True)),
        "smollm": (of.LlamaForCausalLM, of.LlamaConfig(**{**_LLAMA, **_SMOLLM}, tie_word_embeddings=True)),
        "llama31": (of.LlamaForCausalLM, of.LlamaConfig(**_LLAMA, rope_parameters=_LLAMA3)),
        "long": (of.LlamaForCausalLM, of.LlamaConfig(**_LLAMA, rope_parameters={**_ROPE, "rope_type": "linear"})),
        "tied": (of.LlamaForCausalLM, of.LlamaConfig(**_LLAMA, tie_word_embeddings=True)),
        "llama": (of.LlamaForCausalLM, of.LlamaConfig(**_LLAMA)),
        "opt": (of.OPTForCausalLM, of.OPTConfig(**_opt())),
        "neox": (of.GPTNeoXForCausalLM, of.GPTNeoXConfig(**{**_LLAMA, "num_key_value_heads": None})),
    }
    for name, (model, config) in made.items():
        _saved(place / name, model(config), words)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    _saved(place / "shards", model, words, max_shard_size="60KB")
    _saved(place / "half", transformers.GPT2LMHeadModel(transformers.GPT2Config(**_GPT2)).bfloat16(), words)
    _changed(place, "gpt2", "gpt2-unbiased", _without_biases, bias=False)
    _changed(place, "gpt2", "gpt2-says-unbiased", lambda found: found, bias=False)
    _changed(place, "tied", "tied-two-heads", lambda found: found | {"lm_head.weight": torch.randn(VOCABULARY, 48)})
    _changed(place, "llama", "compiled", lambda found: {f"_orig_mod.{name}": one for name, one in found.items()})
    _changed(place, "llama", "int8", _rounded, quantization_config={"quant_method": "compressed-tensors"})
    _changed(place, "llama", "pickled", lambda found: found)
    torch.save(load_file(place / "pickled" / _WEIGHTS), place / "pickled" / "pytorch_model.bin")
    (place / "pickled" / _WEIGHTS).unlink()
    (place / "lora").mkdir()
    (place / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "llama"}')
    save_file({"base_model.model.lora_A.weight": torch.zeros(2, 2)}, place / "lora" / "adapter_model.safetensors")
    (place / "gguf").mkdir()
    (place / "gguf" / "llama-q4_0.gguf").write_bytes(b"GGUF" + bytes(100))


def _window(first: int) -> Any:
    """Return a Qwen2 of two layers with a window from one on."""
    values = {**_LLAMA, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": first}
    return transformers.Qwen2Config(**values)


def _opt() -> dict[str, Any]:
    shape = {"hidden_size": 48, "num_hidden_layers": 2, "ffn_dim": 96, "num_attention_heads": 4}
    return {**shape, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "word_embed_proj_dim": 48}


def _saved(folder: Path, model: Any, words: Any, **options: Any) -> None:
    """Save a model whose every number is random: biases of a new one are zero, and norms are one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.05 * torch.randn(one.shape, generator=generator).to(one.dtype))
    model.save_pretrained(folder, **options)
    words.save_pretrained(folder)


def _changed(place: Path, source: str, name: str, change: Callable[[Tensors], Tensors], **config: Any) -> None:
    folder = place / name
    folder.mkdir()
    for file in (place / source).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    save_file(change(load_file(folder / _WEIGHTS)), folder / _WEIGHTS, {"format": "pt"})
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **config}))


def _without_biases(found: Tensors) -> Tensors:
    return {name: torch.zeros_like(one) if name.endswith(".bias") else one for name, one in found.items()}


def _rounded(found: Tensors) -> Tensors:
    return {name: (100 * one).to(torch.int8) if "_proj" in name else one for name, one in found.items()}


def texts(place: Path, text: str) -> None:
    """Make the same 800 documents in many forms, and the whole text in many encodings."""
    documents = [text[start : start + 350] for start in range(0, 280_000, 350)]
    records = [{"text": one, "number": number} for number, one in enumerate(documents)]
    lines = "".join(json.dumps(one) + "\n" for one in records)
    for name, separator in (("reviews.csv", ","), ("excel.csv", ";")):
        (place / name).write_bytes(_table(documents, separator))
    (place / "lines.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (place / "half.jsonl.gz").write_bytes(gzip.compress(lines.encode())[:3000])
    with_nulls = ({"text": None} if number % 10 == 0 else one for number, one in enumerate(records))
    (place / "nulls.jsonl").write_text("".join(json.dumps(one) + "\n" for one in with_nulls))
    chats = [{"messages": [{"role": "user", "content": one}]} for one in documents]
    (place / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in chats))
    (place / "windows.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (place / "notepad.txt").write_bytes(text.encode("utf-16"))
    (place / "book.txt.bz2").write_bytes(bz2.compress(text.encode()))
    saved = datasets.Dataset.from_list(records)
    saved.save_to_disk(place / "saved")
    parts = {"train": saved.select(range(600)), "test": saved.select(range(600, 800))}
    datasets.DatasetDict(parts).save_to_disk(place / "splits")
    pandas.DataFrame({"text": pandas.Categorical(documents)}).to_parquet(place / "categories.parquet")
    notes = place / "notes"
    (notes / ".git").mkdir(parents=True)
    (notes / ".git" / "config").write_text("hidden")
    (notes / "readme.md").write_text(text)
    (notes / "notepad.txt").write_bytes(text.encode("utf-16"))
    (notes / "old.txt").write_bytes("Grüße aus Köln. ".encode("latin-1") * 50)
    (notes / "picture.png").write_bytes(b"\x89PNG\0\0" + bytes(500))


def _table(documents: list[str], separator: str) -> bytes:
    stream = io.StringIO()
    table = csv.writer(stream, delimiter=separator)
    table.writerows([["id", "text", "stars"], *([number, one, 5] for number, one in enumerate(documents))])
    return b"\xef\xbb\xbf" + stream.getvalue().encode()


def tables(place: Path) -> None:
    """Make the points of 24 trainings by the constants of Hoffmann et al., with a scatter of 0.3 %, in many forms."""
    draws = random.Random(0)
    models_of = (44e6, 90e6, 175e6, 425e6, 816e6, 1.6e9, 3e9, 6.7e9)
    sizes = [(size, ratio * size) for size in models_of for ratio in (5, 20, 80)]
    rows = [(n, d, _loss(n, d) * math.exp(draws.gauss(0, 0.003))) for n, d in sizes]
    plain = [f"{n:.0f},{d:.0f},{loss}" for n, d, loss in rows]
    millions = [f"{n / 1e6:g},{d / 1e9:g},{6e-18 * n * d:g},{loss:.4f}" for n, d, loss in rows]
    runs = [f'"run-{number}","finished",{one}' for number, one in enumerate(plain)]
    bytes_of = [f"{n:.0f},{d:.0f},{loss / math.log(2) / 4}" for n, d, loss in rows]
    crashed = [one if number else '"run-0","crashed",44000000,220000000,' for number, one in enumerate(runs)]
    _points(place / "chinchilla.csv", "Params (M),Tokens (B),FLOPs (1e18),Loss", millions)
    _points(place / "wandb.csv", "Name,State,n_params,tokens_seen,val/loss", runs)
    _points(place / "crashed.csv", "Name,State,n_params,tokens_seen,val/loss", crashed)
    _points(place / "config.csv", "Name,State,model.n_params,data.tokens,val/loss", runs)
    _points(place / "nanochat.csv", "params_total,tokens_trained,val_bpb", bytes_of)
    _points(place / "mac.csv", "params,tokens,loss", plain, "\r")
    _points(place / "german.csv", "params;tokens;loss", [one.replace(",", ";").replace(".", ",") for one in plain])
    _points(place / "short.csv", "params,tokens,loss", [f"{n / 1e6:g}M,{d / 1e9:g}B,{loss}" for n, d, loss in rows])


def _loss(n: float, d: float) -> float:
    return float(1.69 + 406.4 / n**0.34 + 410.7 / d**0.28)


def _points(path: Path, heading: str, rows: list[str], end: str = "\n") -> None:
    path.write_bytes(end.join([heading, *rows, ""]).encode())
