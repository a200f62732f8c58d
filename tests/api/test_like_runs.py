"""Techniques that the catalogue knows to lose: on which device, at which size, and by how sure a measurement."""

from typing import Any

import pytest

from assay.analysis import catalogue
from assay.analysis.catalogue import Catalogue, CatalogueEntry, Change, read, shipped_path
from assay.analysis.effects import Verdict
from assay.api import configure
from assay.api.training import slower_techniques
from assay.hardware import Machine
from assay.optimizations import resolve_run
from assay.records.status import Status

HERE = Machine(processor="Some Processor", cores=2, memory_bytes=2**34)
SENTENCE = "fused_adamw: slower at this size on this CPU in the catalogue (+4.0 % step time)"


def entry(change: float = 0.04, verdict: Verdict = Verdict.DIFFERS, **facts: Any) -> CatalogueEntry:
    usual = {"optimization": "fused_adamw", "treatment": "fused_adamw", "configuration": "demo", "torch": "2.13.0"}
    usual |= {"device": "Some Processor, 2 cores", "date": "2026-11-22"}
    changed = Change(change=change, interval=(change - 0.01, change + 0.01), predicted=None, verdict=verdict)
    return CatalogueEntry(**{**usual, **facts}, status=Status.DONE, changes={"step_seconds": changed})


def said(monkeypatch: pytest.MonkeyPatch, one: CatalogueEntry, *words: str, stack: str = "fused_adamw") -> list[str]:
    monkeypatch.setattr(catalogue, "read", lambda path: Catalogue(entries=(one,)))
    return slower_techniques(resolve_run(configure("demo", words, stack).with_vocabulary()), HERE)


def test_a_technique_that_lost_here_at_this_size_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, entry()) == [SENTENCE]
    assert said(monkeypatch, entry(), "model.n_layer=6") == [SENTENCE]
    assert len(SENTENCE.split()) <= 25


@pytest.mark.parametrize(
    ("one", "words", "stack"),
    [
        (entry(change=-0.04), (), "fused_adamw"),
        (entry(verdict=Verdict.NOT_DISTINGUISHABLE), (), "fused_adamw"),
        (entry(device="Other Processor, 2 cores"), (), "fused_adamw"),
        (entry(device="NVIDIA H100"), (), "fused_adamw"),
        (entry(), ("model.n_embd=512",), "fused_adamw"),
        (entry(), (), "lion"),
        (entry(optimization="activation_checkpointing"), (), "activation_checkpointing"),
    ],
    ids=["faster", "unsure", "elsewhere", "on a GPU", "larger", "not asked for", "saves no time"],
)
def test_nothing_else_is_said_to_lose(
    monkeypatch: pytest.MonkeyPatch, one: CatalogueEntry, words: tuple[str, ...], stack: str
) -> None:
    assert said(monkeypatch, one, *words, stack=stack) == []


def test_a_metric_that_was_not_measured_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, entry().model_copy(update={"changes": {}})) == []


def test_the_catalogue_that_ships_knows_losers() -> None:
    device = next(one.device for one in read(shipped_path()).entries if one.optimization == "fp16_mixed")
    processor, _, cores = device.removesuffix(" cores").rpartition(", ")
    machine = Machine(processor=processor, cores=int(cores), memory_bytes=2**34)
    run = resolve_run(configure("demo", ["device=cpu"], "fp16_mixed").with_vocabulary())
    (sentence,) = slower_techniques(run, machine)
    assert sentence.startswith("fp16_mixed: slower at this size on this CPU in the catalogue (+")


OLD = HERE.model_copy(update={"instructions": ("avx2",)})
NEW = HERE.model_copy(update={"instructions": ("avx2", "avx512_bf16")})


@pytest.mark.parametrize(
    ("stack", "words", "machine", "said"),
    [
        ("bf16_mixed", ("device=cpu",), OLD, "bf16_mixed: this CPU multiplies bfloat16 by conversion"),
        ("bf16_mixed", ("device=cpu",), NEW, ""),
        ("bf16_mixed", ("device=cpu",), HERE, ""),
        ("fp16_mixed", ("device=cpu",), NEW, "fp16_mixed: this CPU multiplies float16 by conversion"),
        ("fp16_mixed", ("device=cuda",), NEW, ""),
        ("fp8", ("model.n_embd=512",), HERE, "fp8: its layers are too small: rounding takes more time"),
        ("fp8", ("model.n_embd=1024", "model.context_length=1024"), HERE, ""),
        ("pipeline_parallel", ("ranks=2",), HERE, "pipeline_parallel: ranks idle for 20% of a step"),
        ("pipeline_parallel:micro_batches=8", ("ranks=2", "training.batch_size=16"), HERE, ""),
        ("pipeline_parallel:schedule=zero-bubble", ("ranks=2",), HERE, ""),
    ],
)
def test_a_rule_with_its_source_names_a_loser_that_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, stack: str, words: tuple[str, ...], machine: Machine, said: str
) -> None:
    monkeypatch.setattr(catalogue, "read", lambda path: Catalogue())
    found = slower_techniques(resolve_run(configure("demo", words, stack).with_vocabulary()), machine)
    assert [one.startswith(said) for one in found] == [True] * bool(said)
    assert all(len(one.split()) <= 25 and one.endswith(")") for one in found)
