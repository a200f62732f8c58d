"""The watch of updates over ranks, with a fault on the second rank in one of the steps."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.config.loading import validate
from assay.optimizations import mesh_of, resolve_run
from assay.parallel.dtensor import local
from assay.parallel.process_rank import join_ranks
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.training.stops import WrongValues
from assay.values.watch import UpdateWatch
from assay.worker.build import device_of
from support.ranks import Case

STEPS, FAULTY = 9, 5


def answer(case: Case) -> dict[str, Any]:
    """Watched updates of rank 0, and what all ranks say of them at the end."""
    from support.ranks.process import build_case

    run = resolve_run(validate(case["run"]))
    device = device_of(run, int(os.environ["LOCAL_RANK"]))
    with join_ranks(mesh_of(run), device) as ranks:
        torch.manual_seed(run.seed + ranks.noise())
        step: Step = build_case(case, run, device, ranks)
        watch = UpdateWatch(run, step, ranks=ranks)
        take = watch.taking(take_step)
        for index in range(STEPS):
            before = [local(one).detach().clone() for _, one in step.named_parameters()]
            if index == FAULTY and ranks.rank == 1:
                _BEFORE.get(case["fault"], _nothing)(step, before)
            (record,) = read(step, [take(step, index, None)])
            if index == FAULTY and ranks.rank == 1:
                _AFTER.get(case["fault"], _nothing)(step, before)
            watch.stepped(record)
        try:
            watch.conclude()
        except WrongValues as fault:
            return {"updates": watch.updates, "said": str(fault)}
    return {"updates": watch.updates, "said": ""}


def _nothing(step: Step, before: list[Tensor]) -> None:
    """Leave everything as it is."""


@torch.no_grad()
def _forget(step: Step, before: list[Tensor]) -> None:
    for entries in step.optimizer.state.values():
        for value in entries.values():
            if isinstance(value, Tensor) and value.ndim:
                local(value).zero_()


@torch.no_grad()
def _put_back(step: Step, before: list[Tensor]) -> None:
    for (_, one), was in zip(step.named_parameters(), before, strict=True):
        local(one).copy_(was)


_Fault = Callable[[Step, list[Tensor]], None]
_BEFORE: Mapping[str, _Fault] = {"moments forgotten": _forget}
_AFTER: Mapping[str, _Fault] = {"update taken back": _put_back}
FAULTS = (*_BEFORE, *_AFTER)
