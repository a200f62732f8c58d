"""One rank of a case: it builds the step, trains, traces and measures, and rank 0 writes what came of all."""

import json
import os
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import DTensor

from assay.config.loading import validate
from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.instruments.pipeline_calls import busy
from assay.instruments.step_trace import StepTracer
from assay.optimizations import mesh_of, optimizations_of, resolve_run
from assay.parallel.dtensor import local
from assay.parallel.process_rank import join_ranks
from assay.training.build import baseline, build
from assay.training.checkpoints import checkpoint
from assay.training.checkpoints.state import weights_at_rest
from assay.training.divergence import first_not_finite, first_not_finite_in
from assay.training.evaluation import evaluate
from assay.training.gradients import cut
from assay.training.loop import read, take_step, train_step
from assay.training.probes import ActivationNorms, RouterStatistics
from assay.training.step_record import Position
from assay.worker.build import device_of
from support.random_data import RandomData
from support.ranks import Case, ranks_of

_MOST_PEAKS, _SAME_PEAKS = 24, 2
_PATIENCE_SECONDS, _MOST_PATIENCE = 0.0002, 16


def _answer(case: Case) -> dict[str, Any]:
    if "answered_by" in case:
        module, _, function = case["answered_by"].partition(":")
        answer: dict[str, Any] = getattr(import_module(module), function)(case)
        return answer

    run = resolve_run(validate(case["run"]))
    device = device_of(run, int(os.environ["LOCAL_RANK"]))
    with join_ranks(mesh_of(run), device) as ranks:
        step = build_case(case, run, device, ranks)
        probes, routers = ActivationNorms(step), RouterStatistics(step)
        records, proof = [], {"evidence": None, "trace": None}
        for index in range(case["steps"]):
            if index == 1:
                routers.take()  # so that what is routed is this step's and later ones'
            if index == 1 and case.get("traced", True):
                record, proof = _traced(step, index, probes, run)
                records.append(record)
            else:
                records.append(train_step(step, index, probes))
        routed = [asdict(layer) for layer in routers.take()]
        evaluation = _evaluated(step) if case.get("whole") else None
        own: dict[str, Any] = {**proof, "weights": _weights(step) if case.get("whole") and _is_double(case) else {}}
        tries = case.get("peak_tries", _MOST_PEAKS)
        own["peak"] = _peak(step, probes, ranks, tries) if case.get("peaks") else None
        own["busy"] = [_busy(step, ranks) for _ in range(case.get("watched", 0))]
        own["named"] = _named(case["broken"], step, ranks) if "broken" in case else None
        said = ranks.gather(json.dumps(own))
        everyone = [json.loads(one) for one in said] if ranks.rank == 0 else []  # which alone is asked
        return {
            "losses": [record.loss for record in records],
            "norms": [record.log_gradient_norm for record in records],
            "activations": [record.activation_norms for record in records],
            "evaluation": evaluation,
            "routers": routed,
            "weights": {name: values for one in everyone for name, values in one["weights"].items()},
            "ranks": [{key: one[key] for key in ("evidence", "trace", "peak", "busy", "named")} for one in everyone],
            "resumed": _resumed(case, run, step, ranks) if "folder" in case else None,
        }


def _traced(step: Any, index: int, probes: Any, run: Any) -> tuple[Any, dict[str, Any]]:
    """The record of a step that is traced, and what its trace shows."""
    tracer = StepTracer(step)
    with tracer:
        taken = take_step(tracer.watch(), index, probes)
    (record,) = read(step, [taken])
    trace = tracer.trace(record.loss, record.tokens)
    evidence = [one.verify(trace, run).model_dump() for one in optimizations_of(run)]
    return record, {"evidence": evidence, "trace": trace.model_dump(mode="json", exclude={"operations"})}


def _evaluated(step: Any) -> list[float]:
    # Seven rows, so that neither ranks nor micro-batches divide them.
    windows = [(ids[:7], targets[:7]) for ids, targets in step.program.batches(0, (0, 1))]
    seen = evaluate(step, lambda: windows, 1.0, 0)
    return [seen.loss, seen.targets]


def _is_double(case: Case) -> bool:
    """Weights are compared where rounding cannot hide a difference."""
    return bool(case["dtype"] == "float64")


def _weights(step: Any) -> dict[str, str]:
    """The bytes of each weight as text, which a list of its numbers would take ten times as long to become."""
    whole = {name: _whole(weight).cpu().numpy() for name, weight in weights_at_rest(step).items()}
    return {name: b64encode(one.tobytes()).decode() for name, one in whole.items()}


def build_case(case: Case, run: Any, device: Any, ranks: Any) -> Any:
    """The step of a case, in its dtype, with its optimizations."""
    program = baseline(run, RandomData(run), device, None, ranks)  # type: ignore[arg-type]
    for part in program.parts:
        part.to(getattr(torch, case["dtype"]))
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(program)


def _resumed(case: Case, run: Any, step: Any, ranks: Any) -> list[list[float]]:
    """Losses of two more steps: of the step that goes on, and of another that goes on from its checkpoint."""
    checkpoint.save(Path(case["folder"]), step, Position(case["steps"]), "any", ranks)
    again = build_case(case, run, step.program.device, ranks)
    position, _ = checkpoint.resume(Path(case["folder"]), again, ranks, run.seed)
    return [[train_step(one, position.step + index).loss for index in range(2)] for one in (step, again)]


def _peak(step: Any, probes: Any, ranks: Any, tries: int) -> int:
    """The least of as many steps as it takes to see it twice on every rank.

    gloo's threads let go of what they sent when they get to it, so on a busy machine most steps hold more. They get
    more time from step to step. A step goes before them: an evaluation may leave gathered weights, which the next
    backward frees.
    """
    train_step(step, 0, probes)
    live = live_tensor_bytes(step.program.device)
    seen: Counter[int] = Counter()
    for patience in range(tries):
        with _patient(min(2**patience, _MOST_PATIENCE) * _PATIENCE_SECONDS):
            peak = tensor_peak(lambda: train_step(step, 0, probes), step.program.device.type)
        seen[peak.above_start_bytes] += 1
        (missing,) = ranks.highest(float(seen[min(seen)] < _SAME_PEAKS))
        if not missing:
            break
    return live + min(seen)


@contextmanager
def _patient(seconds: float) -> Iterator[None]:
    """Give gloo's threads the time to let go of a tensor whenever it has arrived."""

    def patient(wait: Callable[..., Any]) -> Callable[..., Any]:
        def patiently(*arguments: Any, **options: Any) -> Any:
            arrived = wait(*arguments, **options)
            time.sleep(seconds)
            return arrived

        return patiently

    awaited = patch.object(functional, "wait_tensor", patient(functional.wait_tensor))
    with awaited, patch.object(dist.Work, "wait", patient(dist.Work.wait)):
        yield


def _busy(step: Any, ranks: Any) -> Any:
    ranks.meet()
    watched = busy(step.program.device, lambda: train_step(step, 0))
    return watched and asdict(watched)


def _named(broken: tuple[int, str, float], step: Any, ranks: Any) -> Any:
    rank, name, value = broken
    train_step(step, 0)  # an evaluation may leave gathered weights, which only the next backward frees
    if ranks.rank == rank:
        with torch.no_grad():
            local(dict(step.named_parameters())[name]).fill_(value)
    record = train_step(step, 0)
    program, rows = step.program, step.program.batches(0, (0, 1))
    named = first_not_finite(step, cut(program.batches(0, program.parallel.share), program.micro_batches), ranks)
    return [record.finite, named, first_not_finite_in(step, lambda: evaluate(step, lambda: rows, 1.0, 1).loss, ranks)]


def _whole(weight: Any) -> Any:
    return (weight.full_tensor() if isinstance(weight, DTensor) else weight).detach()


def be(rank: int, asked: Path, answered: Path) -> None:
    """One of the ranks, in a process of its own."""
    given = json.loads(asked.read_text())
    store, meet = dist.TCPStore("127.0.0.1", given["port"], is_master=False), dist.init_process_group
    answers = []
    for number, case in enumerate(given["cases"]):
        if rank >= ranks_of(case):
            break
        os.environ["WORLD_SIZE"] = str(ranks_of(case))
        own = dist.PrefixStore(f"case {number}", store)
        dist.init_process_group = partial(meet, store=own, rank=rank, world_size=ranks_of(case))
        try:
            answers.append(_answer(case))
        except Exception as error:
            raise AssertionError(f"case {case['run'].get('optimizations')}: {error}") from error
    if rank == 0:
        answered.write_text(json.dumps(answers))
