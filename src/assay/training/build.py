"""Turn a run into a live step: describe the baseline, let optimizations change the description, then build it once.

The baseline has every optimization off: hand-coded attention, float32 with TF32 off, plain AdamW one tensor after the
other. On a CPU the loss is read at every step. On a GPU the host waits for nothing in a step. There batches are copied
from pinned memory, and the figures of ten steps are read together. Until `build`, all weights are on the meta device
and take no memory. `build` then allocates the parts, restores the ties (materialising unties) and fills every parameter
by its name. It wraps each part's forward with the forward contexts. The optimizer is made last, over parameters that
will stay the same objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.errors import UsageError
from assay.model import GPT, TIED, initializer, tie
from assay.optimizers.recipes import adamw
from assay.parallel.dtensor import fill
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.program import Context, Figures, NamedParameters, Parallel, Program, Step, Weights
from assay.training.batches import training_batches
from assay.training.evaluation import summed_evaluation
from assay.training.gradients import gradient_norm, gradients, not_synchronized, updater
from assay.training.initial import given_weights, nudge_weights
from assay.training.learning_rate import schedule

_DRAWN_AT_ONCE = 4
"""Initial values that are drawn for a GPU at once, each by a thread of its own."""


def baseline(
    run: ResolvedRun,
    data: Prepared,
    device: torch.device,
    weights: Mapping[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> Program:
    """Describe the step with every optimization off; each rank holds all of it until an optimization divides it.

    `weights`, by parameter name, replace the random initialization. Sets torch's float32 matrix products to "highest"
    and turns TF32 off in cuDNN, for the whole process.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    model, weights_of = _own(run) if run.model.own is not None else _gpt(run, weights)
    if run.nudge:
        weights_of = replace(weights_of, initialize=nudge_weights(weights_of.initialize, run.nudge))
    program = Program(
        device=device,
        parts=(model,),
        weights=weights_of,
        parallel=Parallel(reduce_loss=lambda loss: loss, synchronize=not_synchronized, mesh=ranks.mesh),
        batches=training_batches(run, data),
        encode=lambda text: (piece.ids for piece in data.tokenizer.encode_long(text)),
        schedule=schedule(run.training),
        gradients=gradients,
        gradient_norm=gradient_norm,
        optimizer=adamw(run.training),
        update=updater(run.training.gradient_clip),
        evaluate=summed_evaluation,
        figures=Figures(read_every=run.read_every(device.type)),
    )
    return program if run.model.own is None else _with_own(program)


def _gpt(run: ResolvedRun, weights: Mapping[str, Tensor] | None) -> tuple[nn.Module, Weights]:
    with torch.device("meta"):
        model = GPT(run.model)
    initialize = initializer(run.model, run.seed) if weights is None else given_weights(weights)
    return model, Weights(initialize=initialize, tied=TIED if run.model.tie_embeddings else ())


def _own(run: ResolvedRun) -> tuple[nn.Module, Weights]:
    from assay.model.own_model import load_own

    own = load_own(run)
    return own.part, Weights(initialize=given_weights(own.weights), tied=own.tied, buffers=own.buffers)


def _with_own(program: Program) -> Program:
    """Return the program of a user's model with its batches, its count of targets, and its buffers in checkpoints."""
    from assay.model.own_model import Buffers, batches_of, tally_of

    if program.weights.buffers:
        program = replace(program, stateful={"buffers": Buffers(program.parts[0])})
    program = replace(program, figures=replace(program.figures, tally=tally_of(program.parts)))
    own = batches_of(program.parts)
    return program if own is None else replace(program, batches=lambda step, share: [own.at(step, share)])


def build(program: Program) -> Step:
    """Materialise, tie and initialise the parts, wrap their forwards, make the optimizer. A program is built once.

    Raises `ValueError` if a part has a buffer without a value, `RuntimeError` if a program is built a second time, and
    `UsageError` if a technique of the user's has returned none.
    """
    if not isinstance(program, Program):
        raise UsageError(f"apply of a technique returned a {type(program).__name__}; return the changed program")
    for part in program.parts:
        part.to_empty(device=program.weights.rest or program.device)
        names = {name for name, _ in part.named_parameters(remove_duplicate=False)}
        tie(part, tuple(pair for pair in program.weights.tied if names.issuperset(pair)))
        _initialize(part, program.weights, program.device)
        if program.precision.forward_contexts:
            _enter_around_forward(part, program.precision.forward_contexts)
    parameters = [item for part in program.parts for item in part.named_parameters()]
    optimized = program.optimized([item for item in parameters if item[0] not in program.weights.frozen])
    weights, figures = replace(program.weights, initialize=_spent, buffers={}), program.figures
    if program.precision.loss_scale.skips:  # it reads each step's norm before the update
        figures = replace(figures, read_every=1)
    return Step(replace(program, weights=weights, figures=figures), program.optimizer(optimized), optimized)


def _spent(name: str, shape: torch.Size) -> Tensor:
    """Replace the initialization after the build, because it may hold a second copy of all weights."""
    raise RuntimeError(f"{name} is initialised already: a program is built once")


@torch.no_grad()
def _initialize(part: nn.Module, weights: Weights, device: torch.device) -> None:
    """Fill every parameter by its name. A tied weight uses its owner's name, also if the owner is on another rank."""
    for name, buffer in part.named_buffers():
        if name not in weights.buffers:
            raise ValueError(f"the buffer {name!r} would stay uninitialised: the program has no value for it")
        buffer.copy_(weights.buffers[name])
    parameters = list(part.named_parameters())
    values = first_values(parameters, weights, device)
    for _, parameter in parameters:
        fill(parameter, next(values))  # it has no name, so it is freed before the next one is drawn


def first_values(parameters: NamedParameters, weights: Weights, device: torch.device) -> Iterator[Tensor]:
    """Yield the initial value of each parameter. For a GPU a few are drawn at once, while others are copied.

    A value depends on its name alone. On a CPU, and where torch's calls are followed, they are drawn one by one.
    """
    if device.type != "cuda" or _get_current_dispatch_mode() is not None:
        yield from (weights.first(*one) for one in parameters)
        return
    with ThreadPoolExecutor(_DRAWN_AT_ONCE) as pool:
        drawn: deque[Future[Tensor]] = deque()
        for one in parameters:
            drawn.append(pool.submit(weights.first, *one))
            if len(drawn) > _DRAWN_AT_ONCE:
                yield drawn.popleft().result()
        while drawn:
            yield drawn.popleft().result()


def _enter_around_forward(part: nn.Module, contexts: Iterable[Context]) -> None:
    """Wrap the forward as an instance attribute, so that no parameter is renamed."""
    inner, entered = part.forward, tuple(contexts)

    def forward(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for context in entered:
                stack.enter_context(context())
            return inner(*args, **kwargs)

    part.forward = forward
