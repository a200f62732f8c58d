"""Train one run, and say first which of its techniques were slower in like runs of the catalogue.

A run is like another on the same kind of device, if their parameters differ by at most a factor of ten.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api.configuration import Source, Stack, configure, preset_of, specs_of
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import CatalogueEntry
    from assay.api.result_types import TrainedRun
    from assay.config import ModelConfig
    from assay.config.run import ResolvedRun
    from assay.hardware import Machine
    from assay.launch.child import Child
    from assay.launch.prepare import ReadyRun
    from assay.optimizations import Optimization
    from assay.records.run import RunResult
    from assay.store.run_folder import RunFolder


Listener = Callable[[dict[str, Any]], None]
"""Called with each event of a run as it happens: the lines of `events.jsonl`, and three more. `prepare` (message,
fraction) and `run` precede them. `run` has run, folder, steps, tokens_per_step, eval_interval, and as far as known
model_flops, peak_flops and pid. `interrupting` follows a Ctrl-C."""


def train(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    resume: str | None = None,
    branch: str | None = None,
    name: str | None = None,
    home: Home | Path | str | None = None,
    timeout: float | None = None,
    on_event: Listener | None = None,
) -> "TrainedRun":
    """Train and measure one run in its own process, and wait for it.

    `resume` names a run to continue, by its id or name, the start of one, or ``last``. Then only its budget and
    ``ranks`` can be overridden, and `optimizations` are techniques that divide it among ranks, replacing its former
    ones. `branch` is RUN@STEP: a new run begins with that checkpoint, and only its end can be overridden. `name` is
    the name of a new run, in addition to its id. `timeout` is in seconds of the child process. The first Ctrl-C saves
    and stops the run, a second one kills it; the result then has the status `interrupted`. Running out of memory,
    divergence and a timeout are results too, not exceptions. Raises `UsageError` for bad input before anything is
    written, and `StorageError` if the disk refuses. A run of one process ends with a short text of its model, which is
    in its result.
    """
    from assay.api.result_types import TrainedRun
    from assay.launch.spawn import start

    place = home_of(home)
    tell: Listener = on_event or (lambda event: None)
    _check_options(name, resume, timeout, place)
    if branch is None:
        folder, prepared = _ready(source, overrides, optimizations, resume, place, tell)
    else:
        by_itself = resume is None and not specs_of(optimizations)
        folder, prepared = None, _branched(branch, _only_overrides(source, overrides), place, tell, by_itself)
    prepared = replace(prepared, preset=prepared.preset or preset_of(source), name=name)
    alone = prepared.run.ranks == 1
    with start(prepared, place, resume=folder, timeout=timeout, sample=alone) as child:
        where, done = {"run": child.folder.id, "folder": str(child.folder.path)}, prepared.run
        told = {"steps": done.training.steps, "tokens_per_step": done.tokens_per_step, "counted": done.counted}
        tell(_event("run", **where, **told, **_yardsticks(prepared, child), eval_interval=done.training.eval_interval))
        return TrainedRun.in_home(_follow(child, tell), place)


def _ready(
    source: Source, overrides: Sequence[str], optimizations: Stack, resume: str | None, home: Home, tell: Listener
) -> "tuple[RunFolder | None, ReadyRun]":
    """Return the folder of a resumed run (None for a new one), and the run with its corpus and prediction."""
    from assay.hardware.detect import detect
    from assay.launch.prepare import ready
    from assay.launch.resume import run_to_resume, same_corpus
    from assay.optimizations import check_divided

    folder = None
    if resume is None:
        run = configure(source, overrides, optimizations)
        check_divided(run)
    else:
        folder, run = run_to_resume(home, resume, _only_overrides(source, overrides), specs_of(optimizations))
    prepared = ready(run, home, lambda message, fraction: tell(_event("prepare", message=message, fraction=fraction)))
    if folder is not None:
        same_corpus(folder, prepared)
        return folder, prepared
    for sentence in slower_techniques(prepared.run, detect()):
        tell(_event("note", text=sentence))
    return folder, prepared


def _branched(branch: str, overrides: Sequence[str], home: Home, tell: Listener, by_itself: bool) -> "ReadyRun":
    """Return a run that begins with a checkpoint of another, with its corpus and prediction.

    Raises `UsageError` unless the branch is asked for by itself.
    """
    from assay.launch.prepare import ready
    from assay.launch.resume import run_to_branch, same_corpus

    if not by_itself:
        raise UsageError("a branch is a new run with the techniques of the other; leave out --with and --resume")
    other, begun, run = run_to_branch(home, branch, overrides)
    prepared = ready(run, home, lambda message, fraction: tell(_event("prepare", message=message, fraction=fraction)))
    same_corpus(other, prepared)
    return replace(prepared, branch=begun, preset=other.spec().preset)


def _yardsticks(prepared: "ReadyRun", child: "Child") -> dict[str, Any]:
    """Return FLOPs of a step and at the peak, as far as known, and the process whose memory is that of the run."""
    said = prepared.predicted
    work = {} if said is None else {"model_flops": said.model_flops, "peak_flops": said.peak_flops}
    alone = {"pid": child.pid} if prepared.run.ranks == 1 else {}
    return {**work, **alone}


def _follow(child: "Child", tell: Listener) -> "RunResult":
    """Pass a run's events to the listener until it ends. On a Ctrl-C or an error in the listener it saves and stops.

    A second Ctrl-C kills it.
    """
    try:
        try:
            for event in child.events():
                tell(event.line())
        except KeyboardInterrupt:
            child.interrupt()
            with suppress(OSError):  # nothing can be shown on a closed terminal
                tell(_event("interrupting"))
                for event in child.events():
                    tell(event.line())
            child.result()
        except Exception:
            child.interrupt()
            child.result()
            raise
    except KeyboardInterrupt:
        child.kill()
    return child.result()


def _check_options(name: str | None, resume: str | None, timeout: float | None, home: Home) -> None:
    """Raise `UsageError` if a run cannot have this name, or if it would time out before it begins."""
    from assay.store.lookup import check_name

    if timeout is not None and not timeout > 0:
        raise UsageError(f"a timeout of {timeout:g} s is not possible; give a positive number of seconds")
    if name is None:
        return
    if resume is not None:
        raise UsageError("a resumed run keeps its name; leave out --name")
    check_name(home, name)


def _only_overrides(source: Source, overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a resumed run or a branch. Raises `UsageError` if a preset or file is named as well."""
    first = [] if source is None else [source]
    if not all(isinstance(one, str) and "=" in one for one in first):
        raise UsageError("a resumed or branched run keeps its configuration; leave out the preset, or start a new run")
    return [str(one) for one in (*first, *overrides)]


def _event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"event": kind, **facts}


LIKE = 10
"""Factor between the parameters of two runs up to which one speaks for the other."""
BYTES = 256


def loss_changes(run: "ResolvedRun", here: "Machine") -> "dict[str, LossChange]":
    """Return the catalogue's changes of the loss that speak for a run, preferably those on this device.

    They are of runs on the same kind of device, of which the parameters differ by at most a factor of ten.
    """
    from assay.advise.evidence import LossChange
    from assay.analysis.catalogue import device_of, is_processor

    found: dict[str, LossChange] = {}
    on_cpu, device = here.device(run.device) == "cpu", device_of(here)
    for one in sorted(_like(run), key=lambda entry: entry.device == device):
        changed = one.changes.get("val_loss")
        if changed is not None and is_processor(one.device) == on_cpu:
            source = f"{one.configuration}, {one.device}, {one.date}"
            found[one.optimization] = LossChange(changed.change, changed.interval, source)
    return found


def slower_techniques(run: "ResolvedRun", here: "Machine") -> "list[str]":
    """Return a sentence on each technique of a run that takes more time here, by a rule or by a measurement.

    Only a measured difference counts, of a like run with this technique alone on this device. It replaces a rule.
    """
    from assay.optimizations import optimizations_of

    ruled = {one.name(): f"{one.name()}: {why}" for one in optimizations_of(run) if (why := one.known_loss(run, here))}
    return list((ruled | _measured_slower(run, here)).values())


def _measured_slower(run: "ResolvedRun", here: "Machine") -> dict[str, str]:
    from assay.analysis.catalogue import device_of, is_processor
    from assay.optimizations import catalogue
    from assay.units import format_percent

    kinds, asked, device = catalogue(), {spec.name for spec in run.optimizations}, device_of(here)
    if run.model.own is not None or is_processor(device) != (here.device(run.device) == "cpu"):
        return {}
    place = "CPU" if is_processor(device) else "GPU"
    return {
        one.optimization: f"{one.optimization}: slower at this size on this {place} in the catalogue "
        f"({format_percent(one.changes['step_seconds'].change)} step time)"
        for one in _like(run)
        if one.optimization in asked and one.device == device and _saves_time(kinds[one.optimization])
        if (change := one.changes.get("step_seconds")) and change.verdict.distinguishable and change.change > 0
    }


def _saves_time(kind: "type[Optimization]") -> bool:
    """Return whether the card of a technique promises time; "one at a time" is none."""
    return "time" in kind.saves.replace("at a time", "")


def _like(run: "ResolvedRun") -> "Iterator[CatalogueEntry]":
    """Yield the entries of the catalogue whose runs have a like number of parameters."""
    from assay.analysis.catalogue import read, shipped_path

    size = _parameters(run.model)
    for one in read(shipped_path()).entries:
        if abs(log(_parameters_of(one.configuration) / size)) <= log(LIKE):
            yield one


@cache
def _parameters_of(configuration: str) -> int:
    """Return the parameters of an entry of the catalogue: a preset with its settings."""
    preset, *words = configuration.split()
    return _parameters(configure(preset, words).with_vocabulary().model)


def _parameters(model: "ModelConfig") -> int:
    """Return the number of parameters; a vocabulary that no text has determined yet counts as bytes."""
    from assay.cost import parameter_count

    known = model if model.vocab_size else model.model_copy(update={"vocab_size": BYTES})
    return parameter_count(known)
