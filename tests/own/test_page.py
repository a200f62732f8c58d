"""The code blocks of docs/own-model.md run, with a small model in the place of nanoGPT's."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import assay
from assay.errors import UsageError
from assay.report.kit.blocks import plain_text
from support.docs import DOCS

PAGE = (DOCS / "own-model.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
NANOGPT = (DOCS / "walked" / "own-model.md" / "model.py").read_text(encoding="utf-8")


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
    (tmp_path / "recurrent.py").write_text(BLOCKS[-3])
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
    assert result.predicted is not None
    assert result.predicted.traced
    measured, traced = result.memory.tensors_peak_bytes, result.predicted.tensors_peak_bytes
    assert measured is not None
    assert traced == pytest.approx(measured, rel=0.02)
    assert "KiB, traced" in plain_text(result.report())


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
    assert {row.treatment: row.predicted.traced for row in found.rows if row.predicted} == dict.fromkeys(rows, True)
    (row,) = (row for row in found.rows if row.treatment == "activation_checkpointing")
    change = row.effects["tensors_peak_bytes"].change
    assert row.predicted_change["tensors_peak_bytes"] == pytest.approx(change, abs=0.02)


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
