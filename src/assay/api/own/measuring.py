"""Measure programs of a user's own: a training step, in this process or in one of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import UsageError, shown

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from assay.api.own.results import MeasuredOwnStep


def measure(
    step: "Callable[[], Any] | str",
    model: "nn.Module | Sequence[nn.Module] | None" = None,
    optimizer: "Optimizer | Sequence[Optimizer] | None" = None,
    *,
    title: str | None = None,
    tokens: int | None = None,
    blocks: int = 5,
    folder: Path | str | None = None,
) -> "MeasuredOwnStep":
    """Measure one training step of your own: memory, time, operators, and where they go.

    `step` is a function that trains once: batch, forward, backward, update. It may return its loss. It is called some
    dozens of times in this process, and trains the model each time. `model` and `optimizer` may be left out if the step
    calls them, and `tokens` are those of one step.

    `step` may also be a text ``module:function``. Then a process of its own imports the module, from `folder` if it is
    given, and calls the function, which returns the step. Only there the peaks of the process and of the heap are
    measured.

    Raises `UsageError` if no optimizer makes a step, or if the module or its function fails.
    """
    from assay.api.own.results import MeasuredOwnStep

    if not isinstance(blocks, int) or blocks < 1 or (tokens is not None and tokens < 1):
        raise UsageError("blocks and tokens must be positive")
    if isinstance(step, str):
        from assay.launch.own import measured

        if model is not None or optimizer is not None:
            raise UsageError("a step that is named as module:function brings its own model and optimizer")
        return MeasuredOwnStep.of(measured(step, folder, title or step, tokens, blocks))
    if not callable(step):
        raise UsageError(f"a step is a function or the text module:function, and not {shown(step)}")
    from assay.own.measured import measure_step

    name = title or str(getattr(step, "__name__", "a step"))
    found = measure_step(step, _several(model), _several(optimizer), title=name, tokens=tokens, blocks=blocks)
    return MeasuredOwnStep.of(found)


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)
