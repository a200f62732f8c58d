"""What a program calls, and the command line with it: configure, train, compare, estimate, project, anatomy.

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
from assay.config.load import load, stack
from assay.config.run import Run, Spec
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.analysis.comparison import Comparison
    from assay.data.progress import Progress
    from assay.estimate import Estimate
    from assay.estimate.every_rank import EveryRank
    from assay.estimate.projection import Projection
    from assay.hardware import Machine
    from assay.runs.child import Child
    from assay.runs.record import RunResult
    from assay.step.anatomy import Anatomy
    from assay.studies.protocol import News

DEFAULT = "demo"
"""The preset that stands in where none is named."""

Source = Run | str | Path | None
Stack = str | Spec | Sequence[str | Spec]
"""``"sdpa_attention+bf16_mixed"``, or a list of such texts and of specs, which add up."""

Listener = Callable[[dict[str, Any]], None]
"""Called with each event of a run as it happens: the lines of `events.jsonl`, and before them `prepare` (message,
fraction), `run` (run, folder, steps, tokens_per_step) and, after a Ctrl-C, `interrupting`."""


def configure(source: Source = None, overrides: Sequence[str] = (), optimizations: Stack = ()) -> Run:
    """A run from a preset, a YAML file or another run, with ``key=value`` overrides and more optimizations.

    A source that is an override itself stands on the preset `demo`. Raises `UsageError` with one sentence.
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
    """Train and measure one run in a process of its own, and wait for it.

    `resume` names a run (id or name, start of one, or ``last``) to go on with; then only its budget and ``ranks`` can
    be overridden, and `optimizations` are techniques that divide it among ranks, in place of those that it had.
    `name` is what a new run is called, beside its id.
    `timeout` is in seconds of the child. A Ctrl-C stops the run in an orderly way, and a second one at once; the result
    then has the status `interrupted`. An out-of-memory, a divergence or a time-out is a result too, not an exception.
    Raises `UsageError` for what is wrong before anything is written, `StorageError` when the disk refuses.
    """
    from assay.optimizations import divided
    from assay.runs.launcher import start
    from assay.runs.prepare import ready
    from assay.runs.resume import continued, same_corpus

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
    """Measure a baseline, twice, and every treatment at each of some seeds, and read what came out.

    Each treatment is a row: ``"sdpa_attention+bf16_mixed"``. Each row has `processes` at each seed; None takes as many
    as an interval needs. They take turns in `blocks` timed blocks; `timeout` is in seconds that one of them may work.
    A Ctrl-C ends it in an orderly way, with what has finished.
    Raises `UsageError` before anything runs, and `StorageError` when the disk refuses.
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
    """Predict memory, work and time of one optimizer step, without torch and without training anything.

    Over ranks it is of the one that holds most; `estimate_every_rank` has all of them, and their time together.
    Raises `UsageError`, also where only the corpus could say how large the vocabulary is.
    """
    return estimate_every_rank(source, *overrides, optimizations=optimizations, machine=machine).fullest


def estimate_every_rank(
    source: Source = None, *overrides: str, optimizations: Stack = (), machine: "Machine | None" = None
) -> "EveryRank":
    """Predict one optimizer step on every rank of a run: what each holds and sends, and the time of all together.

    Raises what `estimate` does.
    """
    from assay.estimate.every_rank import estimate_every_rank as predict
    from assay.hardware.rates import known_machine
    from assay.optimizations import divided
    from assay.runs.prepare import threads_of

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
    """Plan one optimizer step on `nodes` nodes of `gpus_per_node` GPUs (``a100``, ``h100`` or ``h200``), not here.

    Raises `UsageError` where the run does not divide so, or a plan cannot express it.
    """
    from assay.estimate.projection import project as plan
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
    """Take one step apart: where its time, FLOPs and bytes go by class of operator and by module, measured here.

    Raises `UsageError` for what a person can mend, `StorageError` when the disk refuses.
    """
    from assay.data.progress import silent
    from assay.runs.anatomy import taken_apart

    place = home if isinstance(home, Home) else Home(home)
    run = configure(source, overrides, optimizations)
    found = taken_apart(run, place, on_progress or silent)
    words = [_title(source), *(one for one in (source, *overrides) if isinstance(one, str) and "=" in one)]
    stacked = "+".join(map(str, run.optimizations)) or "no optimization"
    return found.model_copy(update={"title": f"{' '.join(words)} with {stacked}"})


def _with_initial_weights(run: Run, home: Home) -> Run:
    """The run with the shape of the model that it starts from; what reads that is loaded only where one is named."""
    if run.model.init_from is None:
        return run
    from assay.runs.initial import with_initial_weights

    return with_initial_weights(run, home)


def _follow(child: "Child", tell: Listener) -> "RunResult":
    """Hear a run to its end. It saves and stops first when a Ctrl-C comes, or when the listener fails."""
    try:
        try:
            for event in child.events():
                tell(event)
        except KeyboardInterrupt:
            child.interrupt()
            with suppress(OSError):  # a terminal that has closed can show nothing more
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
    from assay.runs.lookup import check_name

    if resume is not None:
        raise UsageError("a resumed run keeps its name; leave out --name")
    check_name(home, name)


def _only_overrides(source: Source, overrides: Sequence[str]) -> list[str]:
    """What may stand beside a run to resume."""
    first = [] if source is None else [source]
    if not all(isinstance(one, str) and "=" in one for one in first):
        raise UsageError("a resumed run keeps its configuration; leave out the preset, or start a new run")
    return [str(one) for one in (*first, *overrides)]


def _title(source: Source) -> str:
    """What a configuration is called: its preset or file, where it has one."""
    if isinstance(source, Run):
        return "configuration"
    return DEFAULT if source is None or "=" in str(source) else str(source)


def _preset(source: Source) -> str | None:
    """The preset or file that a configuration begins with; None where a program has made it."""
    return None if isinstance(source, Run) else Path(_title(source)).name


def _event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"event": kind, **facts}
