"""Attention within documents: what a token sees, what the mask takes, and what is refused."""

from typing import Any

import pytest
import torch

from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from assay.step.document_mask import DocumentMask
from assay.step.program import Step
from support.runs import SHAPE, VARIANTS, run_with, without
from support.steps import build_step, micro_batches, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
MASKED = Spec(name="document_masking")
END = 10


def logits(step: Step, ids: torch.Tensor) -> torch.Tensor:
    """Logits `[B, T, vocab_size]` of a built step."""
    found: torch.Tensor = step.parts[0].logits(ids)
    return found.detach()


def documents() -> torch.Tensor:
    """One row of three documents: of five, one and ten tokens, the last without its end."""
    row = torch.arange(20, 36)
    row[4] = row[5] = END
    return row[None]


def test_the_mask_of_a_row_is_written_out() -> None:
    mask = DocumentMask(END, 6)
    mask.read(torch.nn.Identity(), (torch.tensor([[1, END, END, 3, 4, END]]),))
    assert mask.blocked is not None
    assert (~mask.blocked[0, 0]).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]
    assert mask.sequences == 1


@pytest.mark.parametrize("variant", ["baseline", "rotary", "post"])
def test_a_token_depends_on_its_own_document_alone(variant: str) -> None:
    step, ids = build_step(run_with(MASKED, model=VARIANTS[variant])), documents()
    before = logits(step, ids)
    ids[0, 1] = 50  # in the first document
    changed = (logits(step, ids) != before).any(-1)[0].tolist()
    assert changed == [False, True, True, True, True] + 11 * [False]


def test_with_rotary_positions_a_document_is_as_if_it_stood_alone() -> None:
    step, ids = build_step(run_with(MASKED, model=VARIANTS["rotary"])), documents()
    torch.testing.assert_close(logits(step, ids)[:, 6:], logits(step, ids[:, 6:]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stack", [(), (Spec(name="gradient_accumulation", fields={"micro_batches": 2}),)])
def test_the_mask_is_in_the_ledger(stack: tuple[Spec, ...]) -> None:
    masked, plain = (estimate(run_with(*specs), CPU) for specs in ((MASKED, *stack), stack))
    rows = 4 // (2 if stack else 1)
    assert masked.timeline.peak.nbytes - plain.timeline.peak.nbytes == rows * SHAPE.context_length**2


def test_the_proof_fails_without_the_mask() -> None:
    run = run_with(MASKED)
    evidence = resolve(MASKED).verify(traced(without(run)), run)
    assert evidence.observed.startswith("masks of 1024 of 4096 bytes")
    assert not evidence.verdict


def test_the_proof_fails_where_no_document_ends() -> None:
    run = run_with(Spec(name="document_masking", fields={"end": 60}))
    trace = traced(run)
    rows = [int((ids == 60).any(1).sum()) for ids, _ in micro_batches(build_step(run), 1)]
    assert resolve(run.optimizations[0]).verify(trace, run).verdict is (sum(rows) > 0)
    none = trace.model_copy(update={"batch": trace.batch.model_copy(update={"prepared": {}})})
    assert not resolve(run.optimizations[0]).verify(none, run).verdict


def changed(**sections: dict[str, Any]) -> Run:
    """The masked run with other settings."""
    run = run_with(MASKED)
    parts = {name: getattr(run, name).model_copy(update=values) for name, values in sections.items()}
    return run.model_copy(update=parts)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"data": {"tokenizer": "char"}}, "no token that is known to end a document"),
        ({"data": {"tokenizer": "gpt2"}}, "end=50256 is no token of a vocabulary of 61"),
        ({"model": {"n_expert": 4}}, "no reference for a mixture"),
    ],
)
def test_a_run_that_cannot_be_masked_is_refused(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Conflict, match=sentence):
        resolve(MASKED).check(changed(**sections), CPU)


@pytest.mark.parametrize("other", ["sdpa_attention", "compile"])
def test_other_attention_and_compiled_code_are_refused(other: str) -> None:
    with pytest.raises(Conflict, match="leave one of them out"):
        check(run_with(MASKED, Spec(name=other)), CPU)
