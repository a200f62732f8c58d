from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.config import ModelConfig, Run, TrainingConfig
from assay.data import Prepared
from assay.errors import UsageError
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.model import initializer
from assay.model.weights import save_weights
from assay.parallel.loss_scale import DynamicLossScale
from assay.step.program import Figures, Precision, Program, Step
from assay.training.build import baseline, build, first_values
from assay.training.initial import initial_weights
from support.runs import tiny
from support.steps import CPU, step_of, weights


def test_nothing_is_allocated_before_build(corpus: Prepared) -> None:
    program = baseline(tiny(), corpus, CPU)
    assert all(parameter.is_meta for part in program.parts for parameter in part.parameters())
    step = build(program)
    assert not any(parameter.is_meta for _, parameter in step.named_parameters())


def test_values_that_are_drawn_at_once_are_those_that_are_drawn_one_by_one(corpus: Prepared) -> None:
    program = baseline(tiny(), corpus, CPU)
    parameters = list(program.parts[0].named_parameters())
    alone, at_once = (list(first_values(parameters, program.weights, torch.device(one))) for one in ("cpu", "cuda"))
    assert len(parameters) > 8
    assert all(map(torch.equal, alone, at_once))
    assert not torch.equal(alone[0], alone[1][: len(alone[0])])


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_the_value_that_its_name_gives(corpus: Prepared, tied: bool) -> None:
    run = tiny(tie_embeddings=tied)
    step = step_of(run, corpus)
    initialize = initializer(run.model, run.seed)
    for name, parameter in step.named_parameters():
        assert torch.equal(parameter, initialize(name, parameter.shape)), name
    shared = step.parts[0].get_parameter("head.projection.weight") is step.parts[0].get_parameter(
        "embedding.token.weight"
    )
    assert shared is tied
    assert ("head.projection.weight" in dict(step.named_parameters())) is not tied


def test_the_optimizer_owns_the_live_parameters(corpus: Prepared) -> None:
    step = step_of(tiny(), corpus)
    owned = {parameter for group in step.optimizer.param_groups for parameter in group["params"]}
    assert owned == {parameter for _, parameter in step.named_parameters()}


@pytest.mark.parametrize("tied", [True, False])
def test_a_build_holds_the_weights_and_one_parameters_first_values(corpus: Prepared, tied: bool) -> None:
    program = baseline(tiny(tie_embeddings=tied), corpus, CPU)
    sizes = [p.numel() * p.element_size() for part in program.parts for p in part.parameters()]
    held = sum(sizes) + (0 if not tied else _projection(program))
    peak = tensor_peak(lambda: _built.append(build(program)), "cpu").above_start_bytes
    _built.clear()
    assert held <= peak <= held + max(sizes)


_built: list[Step] = []


def _projection(program: Program) -> int:
    """Materialising unties for a moment: both names are allocated, until they are tied again."""
    weight = program.parts[-1].get_parameter("head.projection.weight")
    return weight.numel() * weight.element_size()


def test_forward_contexts_are_entered_around_each_forward_and_rename_nothing(corpus: Prepared) -> None:
    entered: list[str] = []

    @contextmanager
    def context() -> Iterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    plain = step_of(tiny(), corpus)
    step = step_of(tiny(), corpus, precision=Precision((context,)))
    assert [name for name, _ in step.named_parameters()] == [name for name, _ in plain.named_parameters()]
    ids, targets = step.program.batches(0, (0, 1))[0]
    loss = step.parts[0](ids, targets)
    assert entered == ["in", "out"]
    assert loss.item() == plain.parts[0](ids, targets).item()


def test_a_batch_depends_on_seed_and_step_and_shares_are_its_rows(corpus: Prepared) -> None:
    program = baseline(tiny(), corpus, CPU)
    (ids, targets), (again, _), (other, _) = (program.batches(step, (0, 1))[0] for step in (3, 3, 4))
    assert ids.shape == (4, 16)
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert torch.equal(ids, again)
    assert not torch.equal(ids, other)
    halves = [program.batches(3, (rank, 2))[0][0] for rank in range(2)]
    assert torch.equal(torch.stack(halves, dim=1).flatten(0, 1), ids)


def test_training_starts_from_given_weights(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny()
    origin = step_of(run.model_copy(update={"seed": 5}), corpus)
    save_weights(weights(origin), run.model, tmp_path / "export")
    step = build(baseline(run, corpus, CPU, initial_weights(tmp_path / "export", run.model)))
    for name, value in weights(origin).items():
        assert torch.equal(value, dict(step.named_parameters())[name])
    with pytest.raises(UsageError, match="shape"):
        initial_weights(tmp_path / "export", tiny(n_embd=32).model)


@pytest.mark.parametrize(("device", "asked", "every"), [("cpu", None, 1), ("cuda", None, 10), ("cuda", 3, 3)])
def test_a_plain_step_leaves_its_figures_on_a_gpu(corpus: Prepared, device: str, asked: int | None, every: int) -> None:
    program = baseline(tiny({"read_every": asked}), corpus, torch.device(device))
    assert program.figures.read_every == every


def test_a_loss_of_a_users_own_is_read_in_each_step() -> None:
    model = ModelConfig(own="mine.py:model")
    assert Run(model=model).read_every("cuda") == 1
    assert Run(model=model, training=TrainingConfig(read_every=4)).read_every("cuda") == 4


def test_a_step_that_may_skip_its_update_reads_its_norm(corpus: Prepared) -> None:
    together = Figures(read_every=10)
    assert step_of(tiny(), corpus, figures=together).program.figures.read_every == 10
    scaled = step_of(tiny(), corpus, figures=together, precision=Precision(loss_scale=DynamicLossScale()))
    assert scaled.program.figures.read_every == 1


def test_a_part_with_a_buffer_is_refused(corpus: Prepared) -> None:
    program = baseline(tiny(), corpus, CPU)
    with torch.device("meta"):
        program.parts[0].register_module("extra", nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match=r"buffer 'extra\.running_mean'"):
        build(replace(program))


def test_a_technique_that_returns_no_program_is_told() -> None:
    with pytest.raises(UsageError, match="apply of a technique returned a NoneType; return the changed program"):
        build(None)  # type: ignore[arg-type]
