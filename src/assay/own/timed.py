"""Times of a step of a user's own: blocks of steps that no instrument watches.

The first step makes the optimizer's state, and the next ones still fill caches and compile. They are timed apart.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict

import torch

from assay.instruments.rates import surroundings
from assay.records.timing import Block

_BLOCK_SECONDS, _FEWEST, _MOST = 0.2, 2, 20
"""Aim and limits of a block: its seconds, and its number of steps."""


def timed(step: Callable[[], object]) -> float:
    """Do one step, and return its seconds until each device has finished it."""
    start = time.perf_counter()
    step()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter() - start


def steps_of_a_block(seconds: float) -> int:
    """Number of steps of a block, if a step takes so many seconds."""
    return max(_FEWEST, min(_MOST, round(_BLOCK_SECONDS / max(seconds, 1e-9))))


def timed_block(step: Callable[[], float], steps: int, tokens: int) -> tuple[Block, list[float]]:
    """Do one block of steps, each of which returns its seconds, and return it with these seconds."""
    before = surroundings.read()
    seconds = [step() for _ in range(steps)]
    after = surroundings.read()
    around = surroundings.during([(before, after)], [after.own_seconds - before.own_seconds])
    median = statistics.median(seconds)
    block = Block(
        steps=steps, seconds=sum(seconds), median_step_seconds=median, tokens=steps * tokens, **asdict(around)
    )
    return block, seconds
