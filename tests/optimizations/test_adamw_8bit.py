"""AdamW with state in 8 bits: refused without torchao; float32 state is caught; parts go through a checkpoint."""

from pathlib import Path

import pytest
import torch
from torchao.optim.subclass_8bit import OptimState8bit

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.cost import Tensor, parameters
from assay.cost.update_rules import Pieces
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, Unavailable, adamw_8bit, resolve
from assay.optimizations.adamw_8bit import EightBitAdamWUpdate
from assay.optimizations.adamw_8bit.step import adamw_8bit as coded_adamw
from assay.optimizations.adamw_bf16_state.step import narrow_adamw
from assay.optimizers.recipes import adamw
from assay.step.program import Step
from assay.training.checkpoints import checkpoint
from assay.training.loop import train_step
from assay.training.step_record import Position
from support.optimizers import PIECES, state_bytes
from support.runs import run_with
from support.steps import build_step, losses, traced
from support.swapped import proof_of, traced_with
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
EIGHT = Spec(name="adamw_8bit")
RUN = run_with(EIGHT, model=ModelConfig(n_layer=2, n_head=2, n_embd=64, context_length=16, vocab_size=64))


def test_without_torchao_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adamw_8bit, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'assay\[low-bit\]'"):
        resolve(EIGHT).check(RUN, CPU)


def test_a_model_whose_weights_are_all_small_is_refused() -> None:
    small = ModelConfig(n_layer=2, n_head=2, n_embd=16, context_length=16, vocab_size=64)
    with pytest.raises(Conflict, match="this model has none; use adamw_bf16_state"):
        resolve(EIGHT).check(run_with(EIGHT, model=small), CPU)


@pytest.mark.parametrize("run", [RUN, run_with(EIGHT)], ids=["most of it", "a part of it"])
def test_state_in_eight_bits_is_proven(run: Run) -> None:
    evidence = proof_of(run, traced(run))
    assert evidence.verdict, evidence.observed


@pytest.mark.parametrize("run", [RUN, run_with(EIGHT)], ids=["most of it", "a part of it"])
def test_its_state_is_predicted_to_the_byte(run: Run) -> None:
    assert traced(run).memory.optimizer_state_bytes == estimate(run, CPU).cost.optimizer_state_bytes


@pytest.mark.parametrize("recipe", [adamw(RUN.training), narrow_adamw(RUN.training)], ids=["float32", "bfloat16"])
def test_wider_state_is_caught(recipe: object) -> None:
    assert not proof_of(RUN, traced_with(recipe, RUN)).verdict  # type: ignore[arg-type]


def kinds_of(step: Step) -> list[tuple[str, type]]:
    """Of every parameter's state."""
    entries = [step.optimizer.state[parameter] for _, parameter in step.named_parameters()]
    return [(key, type(one[key])) for one in entries for key in sorted(one)]


def test_it_goes_on_from_a_checkpoint_in_eight_bits(tmp_path: Path) -> None:
    step, again = build_step(RUN), build_step(RUN)
    for index in range(2):
        train_step(step, index)
    checkpoint.save(tmp_path, step, Position(step=2), "any")
    checkpoint.resume(tmp_path, again)
    assert kinds_of(again) == kinds_of(step)
    assert ("exp_avg", OptimState8bit) in kinds_of(again)
    assert train_step(again, 2).loss == train_step(step, 2).loss
    assert train_step(again, 3).loss == train_step(step, 3).loss
    for (_, one), (_, other) in zip(step.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_compiled_it_goes_on_from_a_checkpoint_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    test_it_goes_on_from_a_checkpoint_in_eight_bits(tmp_path)


@pytest.mark.slow
def test_compiled_it_computes_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The update as it runs outside of tests."""
    written = losses(RUN)
    monkeypatch.undo()
    assert losses(RUN) == pytest.approx(written, rel=1e-4)


@pytest.mark.slow
def test_a_step_that_is_recorded_is_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit: a run that is resumed is recorded at another step than one that is not."""
    monkeypatch.undo()
    weights = []
    for recorded in (1, 3):
        step = build_step(RUN)
        for index in range(5):
            if index == recorded:
                with StepTracer(step) as tracer:
                    train_step(tracer.watch(), index)
            else:
                train_step(step, index)
        weights.append([parameter.detach().clone() for _, parameter in step.named_parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


@pytest.mark.slow
def test_a_compiled_update_is_proven_though_it_shows_no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a run: the traced step is not the first, so its update is compiled already."""
    monkeypatch.undo()
    step = build_step(RUN)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    trace = tracer.trace(record.loss, record.tokens)
    assert not any(one.written for one in trace.optimizer.updates)
    evidence = proof_of(RUN, trace)
    assert evidence.verdict, evidence.observed
    still = [one.model_copy(update={"changes": 0}) for one in trace.optimizer.updates[:1]]
    assert not proof_of(RUN, altered(trace, updates=(*still, *trace.optimizer.updates[1:]))).verdict


def test_rows_that_padding_adds_are_part_of_the_proof() -> None:
    model = ModelConfig(n_layer=2, n_head=2, n_embd=32, context_length=16, vocab_size=250)
    run = run_with(EIGHT, Spec(name="vocab_padding", fields={"multiple": 128}), model=model)
    evidence = resolve(EIGHT).verify(traced(run), run)
    assert evidence.verdict, evidence.observed


def test_the_rest_of_a_model_whose_weights_mostly_stay_wide_is_proven() -> None:
    model = ModelConfig(n_layer=1, n_head=2, n_embd=32, context_length=16, vocab_size=50257)
    run = run_with(EIGHT, model=model)
    evidence = proof_of(run, traced(run))
    assert evidence.verdict, evidence.observed
    assert not proof_of(run, traced_with(adamw(run.training), run)).verdict
    assert not proof_of(run, traced_with(narrow_adamw(run.training), run)).verdict


GPT2 = ModelConfig(n_layer=12, n_head=12, n_embd=768, context_length=1024, vocab_size=50257)


def predicted(pieces: Pieces) -> int:
    return sum(one.nbytes for one in EightBitAdamWUpdate().state(pieces))


def test_gpt2_124m_by_hand() -> None:
    matrices = (50257 + 1024) * 768 + 12 * 12 * 768 * 768
    vectors = 12 * (2 * 2 + 3 + 1 + 4 + 1) * 768 + 2 * 768
    assert matrices + vectors == 124_439_808
    codes, scales, tables = matrices, 4 * matrices // 256, (2 + 12 * 4) * 4 * 256
    counts = 4 * (2 + 12 * (4 + 8) + 2)
    by_hand = 2 * (codes + scales + tables + 4 * vectors) + counts
    assert by_hand == 253_595_624
    assert predicted(parameters(GPT2)) == by_hand


@pytest.mark.parametrize(
    ("shape", "moment"),
    [((4095,), 4 * 4095), ((16, 255), 4 * 4080), ((4096,), 4096 + 64 + 1024), ((4097,), 4 * 4097), ((5, 1024), 6224)],
)
def test_small_tensors_and_those_that_blocks_do_not_divide_stay_wide(shape: tuple[int, ...], moment: int) -> None:
    assert predicted({"w": Tensor("w", shape, batched=False)}) == 2 * moment + 4


def test_torchao_keeps_what_is_predicted() -> None:
    with torch.compiler.set_stance("force_eager"):
        assert state_bytes(coded_adamw(TrainingConfig())) == predicted(PIECES)
