"""The code blocks of docs/own-model.md run, with a small model in the place of nanoGPT's."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import assay
from assay.errors import UsageError

PAGE = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
NANOGPT = '''
from dataclasses import dataclass
import torch
from torch import nn
from torch.nn import functional


@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class GPT(nn.Module):
    """A model with the interface of nanoGPT's."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=config.bias)

    def forward(self, ids, targets):
        logits = self.head(self.embed(ids))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), learning_rate, betas, weight_decay=weight_decay)
'''


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that all blocks define, run one after the other."""
    nanogpt, found = ModuleType("model"), dict[str, Any]()
    monkeypatch.setitem(sys.modules, "model", nanogpt)
    exec(NANOGPT, vars(nanogpt))
    for block in BLOCKS:
        exec(block, found)
    return found


def test_every_block_runs_and_measures(names: dict[str, Any]) -> None:
    assert names["found"].program.title == "nanoGPT"
    assert names["found"].program.optimizers == ("AdamW",)
    assert names["llama"].program.modules == ("LlamaForCausalLM",)
    weights = sum(one.numel() for one in names["model"].parameters())
    assert names["llama"].peak_parts["weights"] == 4 * weights
    assert names["llama"].held.optimizer_state_bytes >= 8 * weights
    assert names["Recurrent"](256).layers


@pytest.fixture
def recurrent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The model of the page in a file of the working directory, with a short training on a short text."""
    (tmp_path / "recurrent.py").write_text(BLOCKS[-1])
    (tmp_path / "text.txt").write_text("Some words, again and again. " * 200)
    monkeypatch.chdir(tmp_path)
    short = ("model.context_length=16", "training.steps=6", "training.eval_batches=1")
    return "recurrent.py:recurrent", *short, f"data.path={tmp_path / 'text.txt'}"


@pytest.mark.usefixtures("forked")
def test_the_model_of_the_page_trains_with_proven_techniques(recurrent: tuple[str, ...], tmp_path: Path) -> None:
    stack = "fused_adamw+activation_checkpointing"
    result = assay.train(*recurrent, optimizations=stack, home=tmp_path / "home")
    assert result.status.value == "done", result.reason
    assert [one.verdict for one in result.evidence] == [True, True]
    assert result.values is not None
    assert result.values.verdict, result.values


@pytest.mark.slow
def test_the_model_of_the_page_is_compared(recurrent: tuple[str, ...], tmp_path: Path) -> None:
    rows = ["activation_checkpointing", "bf16_mixed", "gradient_accumulation", "lion", "adamw_8bit"]
    found = assay.compare(*recurrent, treatments=rows, seeds=1, processes=1, blocks=1, home=tmp_path / "home")
    assert {row.treatment: row.status.value for row in found.rows} == dict.fromkeys(rows, "done")
    kept, plain = (
        [sum(one.result.memory.saved_bytes.values()) for one in found.record.of(row)]
        for row in ("activation_checkpointing", "baseline")
    )
    assert max(kept) < min(plain)


def test_a_technique_of_other_layers_is_refused(recurrent: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sdpa_attention changes parts of assay's own model"):
        assay.train(*recurrent, optimizations="sdpa_attention", home=tmp_path / "home")
    with pytest.raises(UsageError, match="no ledger knows the operations"):
        assay.estimate(recurrent[0])


@pytest.mark.usefixtures("forked")
def test_a_trace_has_at_least_weights_and_optimizer_state(recurrent: tuple[str, ...]) -> None:
    traced = assay.trace(*recurrent[:2], "model.vocab_size=256")
    assert traced.peak_bytes > 3 * 4 * traced.parameters
    assert traced.parts["weights"] == 4 * traced.parameters
