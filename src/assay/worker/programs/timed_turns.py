"""The process that times blocks of a step in turns: ``python -m assay.worker.programs.timed_turns``.

The first line of standard input is the task as JSON. Each further line is a turn. The first turn does the steps that
make state and fill caches, and is answered by the name of the device. Each other turn is answered by a timed block as
JSON. A step before each block finds the caches as the other process left them, and is not timed.

The task of a base has the folder of the working tree and that of the base's files. What Python would import from the
former it imports from the latter. Code that got in from the working tree all the same is a fault, for the ratio would
be that of a file with itself. Faults that the user can correct are the last line of standard error, with exit code 2.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from assay.config.extensions import call_function
from assay.errors import UsageError
from assay.records.status import Status
from assay.worker.processes.channel import PARENT_GONE, take_standard_output, when_closed
from assay.worker.programs.own import blame_user, checked_step

_BLOCK_SECONDS, _FEWEST, _MOST = 0.2, 2, 200
"""Aim and limits of a block: its seconds, and its number of steps."""
_WARM = 3
"""Steps before the first block."""


def main() -> int:
    """Do the task; returns the exit code."""
    task = json.loads(sys.stdin.readline())
    answer = os.fdopen(take_standard_output(), "w")
    when_closed(0, lambda: os._exit(PARENT_GONE))
    try:
        for line in _answers(**task):
            print(line, file=answer, flush=True)
    except UsageError as error:
        print(error, file=sys.stderr)
        return Status.UNAVAILABLE.exit_code
    return 0


def _answers(name: str, folder: str, moved: tuple[str, str] | None) -> Iterator[str]:
    """Yield the answer to each turn."""
    places = None if moved is None else (Path(moved[0]), Path(moved[1]))
    if places is not None:
        _move_imports(*places)
    step = checked_step(name, call_function(name, folder))
    from assay.instruments.memory.resident_memory import keep_freed_memory
    from assay.own.measure import time_step, timed_block

    keep_freed_memory()
    with blame_user(name, "step"):
        for _ in islice(sys.stdin, 1):
            seconds = [time_step(step) for _ in range(_WARM)][-1]
            steps = max(_FEWEST, min(_MOST, round(_BLOCK_SECONDS / seconds)))
            if places is not None:
                _check_imports(*places)
            yield _device()
        for _ in sys.stdin:
            yield _block(step, steps, time_step, timed_block)


def _block(step: Callable[[], Any], steps: int, time_step: Any, timed_block: Any) -> str:
    time_step(step)
    block, _ = timed_block(lambda: time_step(step), steps, 0)
    return str(block.model_dump_json())


def _device() -> str:
    """Return the name of the GPU that the step has used, or ``cpu``."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _move_imports(top: Path, root: Path) -> None:
    """Import from the base what the environment has from the working tree, as an editable installation does."""
    for place, entry in enumerate(sys.path):
        found = Path(entry).resolve()
        if found.is_relative_to(top) and (root / found.relative_to(top)).is_dir():
            sys.path[place] = str(root / found.relative_to(top))


def _check_imports(top: Path, root: Path) -> None:
    """Raise `UsageError` if a module is from the working tree, although the base has that file."""
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        found = Path(file).resolve() if isinstance(file, str) else root
        if found.is_relative_to(top) and not found.is_relative_to(root) and (root / found.relative_to(top)).exists():
            raise UsageError(
                f"{name} is imported from the working tree ({found}), so the base would be timed with today's code; "
                "name its folder in PYTHONPATH instead of an editable installation"
            )


if __name__ == "__main__":
    sys.exit(main())
