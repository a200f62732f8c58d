"""Times of steps that the ledger predicts for GPUs that are not there, beside those that real ones took.

    python benchmarks/predicted_times.py [--only WORD] [--fit] [--python PYTHON] [--out PAGE.md]

The rows are the 42 steps of assay that an H200 took, with their seconds (`data/h200_peaks.jsonl`), and the rungs of
the fifth document's ladder on an A100. Rows that are `fitted` there have told a constant, and are not judged. With
`--fit` the constants are computed again. It takes two seconds. With the Python of a CUDA build, the eager rows are
also predicted from the operators that torch dispatches on an absent H200 (`absent_operators.py`), in some minutes.
The page is `docs/measured/predicted_times.md`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from absent_peaks import MEASURED, answered, title
from assay.absent.gpus import ABSENT, description
from assay.absent.launch import library_environment, library_for
from assay.absent.observation import ObservedOperators
from assay.api import configure
from assay.estimator import Estimate, estimate
from assay.estimator.timing import gpu_step
from assay.estimator.timing.dispatched import operator_launches
from assay.estimator.timing.gpu_step import WAIT, play
from assay.estimator.timing.gpu_time import HOST_MARGIN, MARGIN, OTHER_MARGIN
from assay.hardware.devices import absent_machine
from assay.hardware.kernel_seconds import speeds_of
from assay.units import format_percent

MEDIAN, WORST, WORST_OF_HOST, WIDTH = 0.08, 0.25, 0.40, 1.5
"""Largest errors that are asked for, and the largest width of a bound around compiled code."""
FAR, NEAR, NEAR_RIGHT = 1.3, 1.1, 0.9
"""Ratio from which all pairs must be ordered rightly, ratio from which a share must, and that share."""
LARGE, SMALL, SMALL_PREDICTED, RUNG_ERROR = 2.0, 1.05, 1.10, 0.25
"""A step of the ladder is large from a factor on; one below the second may not be predicted above the third."""
RACES = Path(__file__).parent / "data" / "h200_races.jsonl"
HEAD = """# Predicted times of steps on GPUs that are not there

A step on an absent GPU is predicted from its ledger. Each of its kernels takes as long as the operator did that was
measured on one H200 (torch 2.11.0+cu130, driver 580), or as its bytes and FLOPs take between the measured shapes. The
host launches them one after the other at measured costs. Both are played as a queue
([decision 44](../decisions/0044-an-absent-gpu-has-a-clock.md)). Eager steps are also predicted *by operators*: those
that torch's CUDA build dispatches on an absent H200, as `assay absent --times` does for any script.
`python benchmarks/predicted_times.py --python PYTHON --out FILE` writes this page.
"""
FITTED = """## What was fitted

Two constants, both of the host. Four rows that had a part in them or in a rule are marked *fitted*:

- `MODULES`: an operator of a model takes the host {modules:.3g} times as long as one in a chain, which was measured. It
  makes shakespeare-char in bfloat16 with flash attention exact.
- `RECOMPUTED_SECONDS`: a recomputed module takes {recomputed:.3g} µs for each tensor that it saves, besides its
  operators. It makes the same step with checkpointing exact. That the time goes with saved tensors, and not with
  modules, was chosen with GPT-2's step of that kind in view.
- A product of an update takes the host as long as the smallest measured product. That rule came after Muon's step.

Nothing of the device was fitted to a step. Two more rules came after a prediction had failed, each from a source of its
own. The host's time for compiled code is from torch's profiles, after a compiled step of shakespeare-char was 37 % too
fast. Compiled products have aligned sides, as in inductor's sources, after the ladder's compilation had gained × 1.6
instead of × 2.6.
"""


class Row(NamedTuple):
    """One step, measured and predicted."""

    name: str
    shape: str
    """Preset and its changes: rows of one shape are compared with each other."""
    measured: float
    predicted: float
    margin: float
    bound: str
    """What a step waits for: host or device."""
    kind: str
    """judged, fitted, or compiled."""
    dispatched: float | None = None
    """Predicted from the operators that torch dispatched; None if these were not asked for, or if there are none."""

    @property
    def error(self) -> float:
        """Prediction over measurement, less one."""
        return self.predicted / self.measured - 1

    @property
    def limit(self) -> float:
        """Largest error that is asked for."""
        return WORST_OF_HOST if self.bound == "host" else WORST


def rows(only: str = "") -> list[Row]:
    """All steps of assay with seconds, but offloading, whose copies have no predicted time."""
    return [_row(one) for one in _steps(only)]


def _steps(only: str) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    named = [one for one in read if "preset" in one and "seconds" in one and only in title(one)]
    return [one for one in named if "offload" not in title(one)]


def with_operators(found: Sequence[Row], only: str, python: str) -> list[Row]:
    """The rows with the times of their dispatched operators, which torch's CUDA build tells on an absent H200."""
    eager = [one for one in found if one.kind != "compiled"]
    asked = [one | {"over": [*one["over"], "training.read_every=1"]} for one in _steps(only)]
    asked = [one for one in asked if title(one) in {row.name for row in eager}]
    library = library_for([python], lambda text: print(text, file=sys.stderr))
    variables = dict(os.environ) | library_environment(library) | description(ABSENT["h200"], 1)
    program = [python, str(Path(__file__).parent / "absent_operators.py")]
    variables["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    told = answered(asked, program, [], variables, lambda row, answer: f"{len(answer.get('order', ()))} operators")
    times = {row.name: _of_operators(answer) for row, answer in zip(eager, told, strict=True)}
    return [one._replace(dispatched=times.get(one.name)) for one in found]


def _of_operators(answer: Mapping[str, Any]) -> float | None:
    if "distinct" not in answer:
        return None
    kept = ObservedOperators.model_validate_json(json.dumps(answer))
    return play((*operator_launches(kept.calls, speeds_of("h200")), WAIT)).seconds


def races() -> list[Row]:
    """Steps of a race against nanoGPT on the H200, in blocks of ten; none of them was fitted to."""
    return [_row(json.loads(line)) for line in RACES.read_text(encoding="utf-8").splitlines()]


def predicted(row: Mapping[str, Any]) -> Estimate:
    """The estimate of a row, whose steps read their figures if it does not say otherwise."""
    stack = [row["stack"]] if row["stack"] else []
    run = configure(row["preset"], ["training.read_every=1", *row["over"], "device=cuda"], *stack)
    return estimate(run, absent_machine("h200"))


def _row(row: Mapping[str, Any]) -> Row:
    time = predicted(row).step_time
    assert time is not None
    assert time.margin is not None
    assert time.apart is not None
    host, device = time.apart
    special = any(word in title(dict(row)) for word in ("compile", "cuda_graphs"))
    kind = "compiled" if special else "fitted" if row.get("fitted") else "judged"
    shape = " ".join(one for one in (row["preset"], *row["over"]) if "gradient_clip" not in one)
    bound = "host" if host > device else "device"
    return Row(title(dict(row)), shape, row["seconds"], time.seconds, time.margin, bound, kind)


class Pairs(NamedTuple):
    """Pairs of judged rows at one shape whose times differ by more than a ratio, and how many are ordered rightly."""

    count: int
    right: int
    wrong: tuple[str, ...]


def pairs(found: Sequence[Row], ratio: float) -> Pairs:
    """Compare all pairs of judged rows."""
    judged = [one for one in found if one.kind == "judged"]
    alike = [pair for pair in combinations(judged, 2) if pair[0].shape == pair[1].shape]
    apart = [sorted(pair, key=lambda one: one.measured) for pair in alike]
    far = [(fast, slow) for fast, slow in apart if slow.measured > ratio * fast.measured]
    wrong = tuple(f"{fast.name} and {slow.name}" for fast, slow in far if fast.predicted >= slow.predicted)
    return Pairs(len(far), len(far) - len(wrong), wrong)


class Rung(NamedTuple):
    """One rung of the ladder: tokens a second, published and predicted."""

    name: str
    published: float
    predicted: float


def ladder() -> list[Rung]:
    """The rungs of the fifth document that have a speed, as the study of the library repeats them."""
    study, document = _read("library", "gpt124m-ladder.yaml"), _read("documents", "gpt124m-colab.yaml")
    column = [one["name"] for one in document["columns"]].index("tok/sec")
    known = {one["name"]: one["figures"][column] for one in document["rows"]}
    cells = {f"rung={name}": cell or {} for name, cell in study["vary"]["rung"].items()}
    first = next(iter(cells))
    repeats = study["published"]["repeats"]
    return [
        Rung(name, speed, _tokens_per_second(study, cells[repeats[name] if repeats[name] in cells else first]))
        for name, speed in known.items()
        if speed is not None
    ]


def _read(folder: str, name: str) -> dict[str, Any]:
    text = resources.files(f"assay.studies.{folder}").joinpath(name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _tokens_per_second(study: Mapping[str, Any], cell: Mapping[str, Any]) -> float:
    changed = [f"{key}={value}" for key, value in cell.items() if key != "optimizations"]
    overrides = [*(str(one).replace("False", "false") for one in study["overrides"]), *changed]
    stack = [cell["optimizations"]] if "optimizations" in cell else []
    found = estimate(configure(study["base"], [*overrides, "device=cuda"], *stack), absent_machine("a100-40gb"))
    assert found.step_seconds is not None
    return found.run.tokens_per_step / found.step_seconds


def failures(found: Sequence[Row], rungs: Sequence[Rung]) -> Iterator[str]:
    """What is not within the limits, in words."""
    judged = [one for one in found if one.kind == "judged"]
    if judged and (middle := median(abs(one.error) for one in judged)) > MEDIAN:
        yield f"the median error is {middle:.1%}"
    yield from (f"{one.name} is off by {one.error:+.1%}" for one in judged if abs(one.error) > one.limit)
    yield from (f"{one.name} is beyond its margin of {one.margin:.0%}" for one in found if abs(one.error) > one.margin)
    yield from (f"not in order: {names}" for names in pairs(found, FAR).wrong)
    near = pairs(found, NEAR)
    if near.right < NEAR_RIGHT * near.count:
        yield f"only {near.right} of {near.count} near pairs are in order"
    if (width := (1 + MARGIN) / (1 - MARGIN)) > WIDTH + 1e-9:
        yield f"the bound of compiled code is × {width:.2f} wide"
    yield from _failures_of(rungs)


def _failures_of(rungs: Sequence[Rung]) -> Iterator[str]:
    for before, after in pairwise(rungs):
        gained, told = after.published / before.published, after.predicted / before.predicted
        if gained >= LARGE and abs(told / gained - 1) > RUNG_ERROR:
            yield f"{after.name} gained × {gained:.2f}, predicted × {told:.2f}"
        if gained < SMALL and told > SMALL_PREDICTED:
            yield f"{after.name} gained × {gained:.2f}, predicted × {told:.2f}"
    gained, told = rungs[-1].published / rungs[0].published, rungs[-1].predicted / rungs[0].predicted
    if abs(told / gained - 1) > RUNG_ERROR:
        yield f"the whole ladder gained × {gained:.2f}, predicted × {told:.2f}"


def fitted() -> tuple[float, float]:
    """Both constants, each from the row that it makes exact."""
    read = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    plain, again = (one for one in read if one.get("fitted") and one["preset"] == "shakespeare-char")
    shipped = gpu_step.MODULES, gpu_step.RECOMPUTED_SECONDS
    try:
        modules = gpu_step.MODULES = _solved(lambda value: _with("MODULES", value, plain), plain["seconds"], 10.0)
        recomputed = _solved(lambda value: _with("RECOMPUTED_SECONDS", value, again), again["seconds"], 1e-3)
    finally:
        gpu_step.MODULES, gpu_step.RECOMPUTED_SECONDS = shipped
    return modules, recomputed


def _with(constant: str, value: float, row: Mapping[str, Any]) -> float:
    setattr(gpu_step, constant, value)
    seconds = predicted(row).step_seconds
    assert seconds is not None
    return seconds


def _solved(seconds: Callable[[float], float], measured: float, high: float) -> float:
    """Bisect for the value between 0 and `high` at which the predicted seconds are the measured ones."""
    low = 0.0
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if seconds(middle) < measured else (low, middle)
    return low


def table(found: Sequence[Row]) -> Iterator[str]:
    """Rows as lines of a table."""
    apart = any(one.dispatched for one in found)
    yield f"| step | measured, ms | predicted, ms | error |{' error by operators |' * apart} margin | bound by | |"
    yield f"| --- | ---: | ---: | ---: |{' ---: |' * apart} ---: | --- | --- |"
    for one in found:
        by = "" if one.dispatched is None else format_percent(one.dispatched / one.measured - 1)
        yield (
            f"| {one.name} | {one.measured * 1e3:.1f} | {one.predicted * 1e3:.1f} | {format_percent(one.error)} |"
            f"{f' {by} |' * apart} ± {one.margin:.0%} | {one.bound} | {one.kind} |"
        )


def summary(found: Sequence[Row]) -> Iterator[str]:
    """What is asked for, and what was found."""
    judged = [one for one in found if one.kind == "judged"]
    yield "| of the judged rows | asked for | found |"
    yield "| --- | --- | --- |"
    if not judged:
        return
    errors = [abs(one.error) for one in judged]
    yield f"| median error | at most {MEDIAN:.0%} | {median(errors):.1%} of {len(judged)} |"
    for bound, limit in (("device", WORST), ("host", WORST_OF_HOST)):
        worst = max((one for one in judged if one.bound == bound), key=lambda one: abs(one.error), default=None)
        if worst is not None:
            told = f"{format_percent(worst.error)}, {worst.name}"
            yield f"| worst where the {bound} bounds the step | at most {limit:.0%} | {told} |"
    for ratio, share in ((FAR, 1.0), (NEAR, NEAR_RIGHT)):
        one = pairs(found, ratio)
        told = f"{share:.0%} in order | {one.right} of {one.count}"
        yield f"| pairs of one shape, more than {ratio - 1:.0%} apart | {told} |"
    others = [one.dispatched / one.measured - 1 for one in judged if one.dispatched]
    if others:
        worst_of = max(others, key=abs)
        told = f"median error {median(map(abs, others)):.1%}, worst {format_percent(worst_of)}, of {len(others)}"
        yield f"| by the operators that torch dispatches | as above | {told} |"
    compiled = [one for one in found if one.kind == "compiled"]
    inside = sum(abs(one.error) <= one.margin for one in compiled)
    yield f"| compiled and captured steps | within ± {MARGIN:.0%} | {inside} of {len(compiled)} |"


def climbed(rungs: Sequence[Rung]) -> Iterator[str]:
    """The ladder as a table."""
    yield "| rung | tokens/s, published | predicted | error | step, published | step, predicted |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for before, one in zip((None, *rungs), rungs, strict=False):
        steps = ("", "")
        if before is not None:
            steps = (f"× {one.published / before.published:.2f}", f"× {one.predicted / before.predicted:.2f}")
        error = format_percent(one.predicted / one.published - 1)
        yield f"| {one.name} | {one.published:,.0f} | {one.predicted:,.0f} | {error} | {steps[0]} | {steps[1]} |"
    first, last = rungs[0], rungs[-1]
    whole = f"× {last.published / first.published:.2f} | × {last.predicted / first.predicted:.2f}"
    yield f"| the whole | | | | {whole} |"


def page(found: Sequence[Row], rungs: Sequence[Rung]) -> str:
    """The page: summary, rows, constants, the ladder, and what is beyond a limit."""
    lines = [HEAD, f"{datetime.now(UTC):%Y-%m-%d}:\n", *summary(found), ""]
    beyond = list(failures(found, rungs))
    lines += ["Beyond a limit:" if beyond else "Nothing is beyond a limit.", "", *(f"- {one}\n" for one in beyond)]
    lines += [*table(found), "", _margins()]
    lines += [FITTED.format(modules=gpu_step.MODULES, recomputed=gpu_step.RECOMPUTED_SECONDS * 1e6), _ladder_head()]
    return "\n".join([*lines, *climbed(rungs), "", _RACED, *table(races()), "", _LEFT_OUT])


def _margins() -> str:
    return (
        f"The margin that `assay estimate` prints is ± {MARGIN:.0%} where the H200 bounds a step or runs compiled or "
        f"captured code, ± {HOST_MARGIN:.0%}\nwhere the host bounds it, and ± {OTHER_MARGIN:.0%} on any other device. "
        "They are round numbers above the errors here, not\nintervals of a distribution: all rows are of one machine "
        "and two shapes.\n"
    )


def _ladder_head() -> str:
    return (
        "## The fifth document's ladder on an A100\n\n"
        "The document trains GPT-124M at context 512 on an A100 of 40 GB, each rung at the batch that fits. Its speeds "
        "stand beside\nthose predicted for the cells of `assay study show gpt124m-ladder`, from the datasheets of the "
        "A100 and the H200. Nothing\nwas fitted to them. The document's code is not known: its norms and activations "
        "may be written out, its AdamW is probably\ntorch's default over lists, and its half precision is float16 with "
        "a scaler.\n"
    )


_RACED = """## Another race on the H200

GPT-2 124M without biases on 12 sequences of 1,024 tokens, medians of six to eight blocks of ten steps, which scatter by
± 4 %. Only the first two rows read their figures in each step. Nothing was fitted to them, but the profile behind the
host's time of compiled code is of such steps.
"""
_LEFT_OUT = """## What is not predicted

- Steps with copies to the host (`activation_offload`, `cpu_offload`): the link between both has no measured rate. The
  H200 took 171 ms for one such step, 131 ms more than without.
- Products in float8, which datasheets here do not have, and several ranks.
- Mixtures of experts count their kernels, but no step of one was measured, so their margin is the wide one.
- Compiled and captured code of a script on an absent GPU, and its events.
- The host of another machine. Its launch costs are those of the machine with the H200.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, write. Return 1 if anything is beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--python")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if given.fit:
        print("MODULES {:.4g}, RECOMPUTED_SECONDS {:.4g}".format(*fitted()))
    found, rungs = rows(given.only), ladder()
    if given.python:
        found = with_operators(found, given.only, given.python)
    text = page(found, rungs)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    return int(any(True for _ in failures(found, rungs)))


if __name__ == "__main__":
    sys.exit(main())
