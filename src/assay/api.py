"""Functions that programs and the command line call: configure, train, compare, estimate, project, anatomy.

import assay

result = assay.train("shakespeare-char-cpu", "training.steps=200", optimizations="sdpa_attention+bf16_mixed")
print(result.val_loss, result.memory.tensors_peak_bytes, result.evidence)
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.config.home import Home
from assay.config.loading import load, stack
from assay.config.run import Run, Spec
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.analysis.comparison import Comparison
    from assay.data.progress import Progress
    from assay.estimator import Estimate
    from assay.estimator.projection import Projection
    from assay.estimator.ranks import EveryRank
    from assay.hardware import Machine
    from assay.launch.child import Child
    from assay.records.anatomy import Anatomy
    from assay.records.run import RunResult
    from assay.studies.protocol import News

DEFAULT = "demo"
"""Preset that is used if none is named."""

Source = Run | str | Path | None
Stack = str | Spec | Sequence[str | Spec]
"""Optimizations as a text such as ``"sdpa_attention+bf16_mixed"``, as a spec, or as a list of both, which add up."""

Listener = Callable[[dict[str, Any]], None]
"""Called with each event of a run as it happens: the lines of `events.jsonl`, and three more. `prepare` (message,
fraction) and `run` (run, folder, steps, tokens_per_step, eval_interval) precede them. `interrupting` follows a
Ctrl-C."""


def configure(source: Source = None, overrides: Sequence[str] = (), optimizations: Stack = ()) -> Run:
    """Return the run of a preset, a YAML file or another run, with ``key=value`` overrides and added optimizations.

    A source that is itself an override applies to the preset `demo`. Raises `UsageError` with one sentence.
    """
    if isinstance(source, str) and "=" in source and not os.path.isfile(source):
        return configure(None, [source, *overrides], optimizations)
    return load(DEFAULT if source is None else source, overrides, _specs(optimizations))


def train(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    resume: str | None = None,
    name: str | None = None,
    home: Home | Path | str | None = None,
    timeout: float | None = None,
    on_event: Listener | None = None,
) -> "RunResult":
    """Train and measure one run in its own process, and wait for it.

    `resume` names a run to continue, by its id or name, the start of one, or ``last``. Then only its budget and
    ``ranks`` can be overridden, and `optimizations` are techniques that divide it among ranks, replacing its former
    ones. `name` is the name of a new run, in addition to its id. `timeout` is in seconds of the child process. The
    first Ctrl-C saves and stops the run, a second one kills it; the result then has the status `interrupted`. Running
    out of memory, divergence and a timeout are results too, not exceptions. Raises `UsageError` for bad input before
    anything is written, and `StorageError` if the disk refuses.
    """
    from assay.launch.prepare import ready
    from assay.launch.resume import continued, same_corpus
    from assay.launch.spawn import start
    from assay.optimizations import divided

    place = home if isinstance(home, Home) else Home(home)
    tell: Listener = on_event or (lambda event: None)
    if timeout is not None and not timeout > 0:
        raise UsageError(f"a timeout of {timeout:g} s is not possible; give a positive number of seconds")
    folder = None
    if name is not None:
        _can_be_called(name, resume, place)
    if resume is None:
        run = divided(_with_initial_weights(configure(source, overrides, optimizations), place))
    else:
        folder, run = continued(place, resume, _only_overrides(source, overrides), _specs(optimizations))
    prepared = ready(run, place, lambda message, fraction: tell(_event("prepare", message=message, fraction=fraction)))
    if folder is not None:
        same_corpus(folder, prepared)
    prepared = replace(prepared, preset=_preset(source), name=name)
    with start(prepared, place, resume=folder, timeout=timeout) as child:
        where, done = {"run": child.folder.id, "folder": str(child.folder.path)}, prepared.run
        told = {"steps": done.training.steps, "tokens_per_step": done.tokens_per_step}
        tell(_event("run", **where, **told, eval_interval=done.training.eval_interval))
        return _follow(child, tell)


def compare(
    source: Source = None,
    *overrides: str,
    treatments: Sequence[str],
    seeds: int = 3,
    processes: int | None = None,
    blocks: int = 5,
    timeout: float | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "Comparison":
    """Measure a baseline twice and every treatment at each of several seeds, and analyse the results.

    Each treatment, such as ``"sdpa_attention+bf16_mixed"``, is a row with `processes` processes at each seed. None
    takes as many as an interval needs. The processes take turns in `blocks` timed blocks. `timeout` limits the seconds
    that one of them may work. A Ctrl-C saves and stops the comparison, and keeps the cells that have finished. Raises
    `UsageError` before anything runs, and `StorageError` if the disk refuses.
    """
    from assay.analysis.comparison import analyse
    from assay.data.progress import silent
    from assay.studies.compare import compare as measure

    place = home if isinstance(home, Home) else Home(home)
    record = measure(
        _with_initial_weights(configure(source, overrides), place),
        treatments,
        home=place,
        seeds=seeds,
        processes=processes,
        blocks=blocks,
        timeout=timeout,
        title=_title(source),
        prepare=on_progress or silent,
        tell=on_news or (lambda news: None),
    )
    return analyse(record)


def estimate(
    source: Source = None, *overrides: str, optimizations: Stack = (), machine: "Machine | None" = None
) -> "Estimate":
    """Predict memory, work and time of one optimizer step, without torch and without training.

    Returns the estimate of the rank with the highest peak. `estimate_every_rank` returns all ranks and their joint step
    time. Raises `UsageError`, also if only the corpus determines the vocabulary size.
    """
    return estimate_every_rank(source, *overrides, optimizations=optimizations, machine=machine).fullest


def estimate_every_rank(
    source: Source = None, *overrides: str, optimizations: Stack = (), machine: "Machine | None" = None
) -> "EveryRank":
    """Predict one optimizer step on every rank of a run: memory and payload of each, and their joint step time.

    Raises the errors of `estimate`.
    """
    from assay.estimator.ranks import estimate_every_rank as predict
    from assay.hardware.rates import known_machine
    from assay.launch.prepare import threads_of
    from assay.optimizations import divided

    run = divided(_with_initial_weights(configure(source, overrides, optimizations), Home()))
    return predict(run, machine or known_machine(Home(), threads_of(run)))


def project(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    gpu: str,
    nodes: int = 1,
    gpus_per_node: int = 8,
) -> "Projection":
    """Plan one optimizer step on absent machines: `nodes` nodes with `gpus_per_node` GPUs each.

    `gpu` is ``a100``, ``h100`` or ``h200``. Raises `UsageError` if the run cannot be divided so, or a plan cannot
    express it.
    """
    from assay.estimator.projection import project as plan
    from assay.hardware.cluster import cluster

    run = _with_initial_weights(configure(source, overrides, optimizations), Home())
    return plan(run, cluster(gpu, nodes, gpus_per_node))


def anatomy(
    source: Source = None,
    *overrides: str,
    optimizations: Stack = (),
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "Anatomy":
    """Measure one step on this machine: time, FLOPs and bytes by class of operator and by module.

    Raises `UsageError` for faults that the user can correct, `StorageError` if the disk refuses.
    """
    from assay.data.progress import silent
    from assay.launch.anatomy import taken_apart

    place = home if isinstance(home, Home) else Home(home)
    run = configure(source, overrides, optimizations)
    found = taken_apart(run, place, on_progress or silent)
    words = [_title(source), *(one for one in (source, *overrides) if isinstance(one, str) and "=" in one)]
    stacked = "+".join(map(str, run.optimizations)) or "no optimization"
    return found.model_copy(update={"title": f"{' '.join(words)} with {stacked}"})


def _with_initial_weights(run: Run, home: Home) -> Run:
    """Return the run with the model shape of its initial weights; their reader is imported only if they are named."""
    if run.model.init_from is None:
        return run
    from assay.launch.initial_weights import with_initial_weights

    return with_initial_weights(run, home)


def _follow(child: "Child", tell: Listener) -> "RunResult":
    """Pass a run's events to the listener until it ends. On a Ctrl-C or an error in the listener it saves and stops.

    A second Ctrl-C kills it.
    """
    try:
        try:
            for event in child.events():
                tell(event)
        except KeyboardInterrupt:
            child.interrupt()
            with suppress(OSError):  # nothing can be shown on a closed terminal
                tell(_event("interrupting"))
                for event in child.events():
                    tell(event)
            child.result()
        except Exception:
            child.interrupt()
            child.result()
            raise
    except KeyboardInterrupt:
        child.kill()
    return child.result()


def _specs(optimizations: Stack) -> tuple[Spec, ...]:
    return stack([optimizations] if isinstance(optimizations, str | Spec) else optimizations)


def _can_be_called(name: str, resume: str | None, home: Home) -> None:
    from assay.store.lookup import check_name

    if resume is not None:
        raise UsageError("a resumed run keeps its name; leave out --name")
    check_name(home, name)


def _only_overrides(source: Source, overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a resumed run. Raises `UsageError` if a preset or file is named as well."""
    first = [] if source is None else [source]
    if not all(isinstance(one, str) and "=" in one for one in first):
        raise UsageError("a resumed run keeps its configuration; leave out the preset, or start a new run")
    return [str(one) for one in (*first, *overrides)]


def _title(source: Source) -> str:
    """Title of a configuration: its preset or file, or ``configuration`` for a `Run`."""
    if isinstance(source, Run):
        return "configuration"
    return DEFAULT if source is None or "=" in str(source) else str(source)


def _preset(source: Source) -> str | None:
    """Preset or file that a configuration starts from; None for a `Run`."""
    return None if isinstance(source, Run) else Path(_title(source)).name


def _event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"event": kind, **facts}
