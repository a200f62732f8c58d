"""`assay estimate`: memory, work and time of one training step, predicted without training."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from assay.cli.options import (
    CUDA_DEVICES,
    Json,
    Nproc,
    Overrides,
    Rows,
    Source,
    changes,
    check_place,
    check_used,
    given_options,
    only_one,
)
from assay.config.extensions import names_a_function as is_own
from assay.errors import UsageError

_Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help=f"A GPU that may be absent, by its datasheet: {CUDA_DEVICES}."),
]
_Instants = Annotated[
    bool, typer.Option("--instants", help="Print the highest instant of each part of the step, not the peak's parts.")
]
_Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="First time steps of few blocks, so that the step time is a measured one.")
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Also trace the program on fake tensors; the only way for a model of your own.")
]
_Absent = Annotated[
    bool,
    typer.Option("--absent", help="With --device: run the step on an absent GPU, with torch's CUDA build (Linux)."),
]
_Largest = Annotated[
    bool, typer.Option("--largest", help="With --trace or --absent: also find the largest batch that fits the device.")
]
_Within = Annotated[
    float | None,
    typer.Option(
        "--within",
        min=1.0,
        max=86400.0,
        metavar="SECONDS",
        help="With --calibrate: time that it may take; default: 20.",
    ),
]
_USES = {
    "": ("--device", "--with", "--nproc", "--instants"),
    "--device": ("--device", "--with", "--instants"),
    "--calibrate": ("--within", "--with", "--nproc", "--instants"),
    "--trace": ("--device", "--with", "--nproc", "--largest"),
    "--absent": ("--device", "--with", "--largest"),
}
"""Options by the way that uses them. Without one it is the ledger's step on this machine, or on a device."""

MOVED = {
    **dict.fromkeys(("--nodes", "--gpus-per-node", "--gpu"), "plan"),
    **dict.fromkeys(("--inference", "--bits"), "inference"),
    **dict.fromkeys(("--tokens", "--devices", "--mfu", "--price"), "cost"),
    **dict.fromkeys(("--accuracy", "--page"), "accuracy"),
}
"""Verbs by an option that `estimate` had, and that they have now."""
_SAID = ("--inference", "--accuracy")
"""Options that are the name of their verb, which has no such option."""


class Command(typer.core.TyperCommand):
    """The command of `assay estimate`, which knows the options that it had."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command. Raises `UsageError` for an option that another verb has now."""
        refuse_moved(args)
        return super().parse_args(ctx, args)


def estimate(
    source: Source = None,
    overrides: Overrides = None,
    with_: Rows = None,
    nproc: Nproc = None,
    instants: _Instants = False,
    device: _Device = None,
    calibrate: _Calibrate = False,
    within: _Within = None,
    trace: _Trace = False,
    absent: _Absent = False,
    largest: _Largest = False,
    as_json: Json = False,
) -> None:
    """Predict the memory and time of a step.

    The parts of its peak are printed, in milliseconds. Each of several --with is a row beside the configuration; a
    stack is joined with +. With --calibrate: first time steps of few blocks, and predict the time of a step from them.
    With --nproc: predict the rank with the highest peak, then memory and payload of all ranks, and their joint step
    time. With --device: predict memory and time of the step on one GPU that may be absent. Its time follows from
    operators that were measured on one H200. With --trace: follow the program itself on tensors without memory, which
    serves a model of your own, module:function, as well. With --device and --trace or --absent: predict the peak memory
    of one step on a GPU. A function may then return a step of your own.

    \b
        assay estimate demo
        assay estimate gpt2-124m --with sdpa_attention+bf16_mixed training.batch_size=16
        assay estimate gpt2-124m --device h100 --with bf16_mixed --with bf16_mixed+sdpa_attention
        assay estimate shakespeare-char-cpu model.vocab_size=65 --calibrate
        assay estimate demo --nproc 2 --with fully_sharded
        assay estimate gpt2-124m --device rtx4090 --with sdpa_attention+bf16_mixed
        assay estimate my.module:build training.batch_size=16 --trace
        assay estimate gpt2-124m --trace --device h100 --largest
        assay estimate train.py:build --absent --device rtx4090

    Other verbs answer for several nodes (plan), generation (inference), hours and money (cost) and earlier errors
    (accuracy).

    Exit codes: 0 done; 2 wrong input; 3 the process that follows a step was killed.
    """
    options = {
        "--trace": trace, "--calibrate": calibrate, "--within": within, "--device": device, "--with": with_,
        "--nproc": nproc, "--instants": instants, "--absent": absent, "--largest": largest,
    }  # fmt: skip
    check_place(device, source, *(overrides or ()))
    _answer(_way(options), source, changes(overrides, nproc), options, as_json)


def _way(options: Mapping[str, Any]) -> str:
    """Return the way that options choose, of `_USES`. Raises `UsageError` for two, and for an option of another."""
    found = only_one([one for one in given_options(options) if one in _USES and one != "--device"])
    found = "--device" if not found and options["--device"] is not None else found
    check_used(found, _USES, options)
    return found


def refuse_moved(words: Sequence[str]) -> None:
    """Raise `UsageError` with the command to type, if words of `assay estimate` have an option of another verb."""
    options = words[: words.index("--")] if "--" in words else words
    names = [one.partition("=")[0] for one in options]
    first: dict[str, str] = {}
    for name in names:
        if name in MOVED:
            first.setdefault(MOVED[name], name)
    if not first:
        return
    (verb, name), *others = first.items()
    if others:
        other, its = others[0]
        raise UsageError(f"{name} is asked of assay {verb} now, and {its} of assay {other}; ask each alone")
    kept = [one for one in words if one not in _SAID]
    missing = ["--tokens", "COUNT"] if verb == "cost" and "--tokens" not in names else []
    raise UsageError(f"{name} is asked of assay {verb} now: {shlex.join(['assay', verb, *kept, *missing])}")


CALIBRATION_SECONDS = 20.0
"""Time that a calibration may take, if nothing else is asked for."""


def _answer(way: str, source: str | None, changed: list[str], options: Mapping[str, Any], as_json: bool) -> None:
    """Print the answer, found in a way that `assay estimate` knows."""
    stack = options["--with"] or []
    followed = "a model of your own" if is_own(source) else "--instants" if options["--instants"] else way
    if len(stack) > 1 and followed in ("--trace", "--absent", "--instants", "a model of your own"):
        raise UsageError(f"{followed} has one row; join the techniques, as in --with {'+'.join(stack)}")
    if way == "--absent" or (options["--device"] is not None and (way == "--trace" or is_own(source))):
        _gpu_peak(source, changed, stack, options, None if way == "--device" else way.strip("-"), as_json)
    elif way == "--trace":
        _traced(source, changed, stack, as_json)
    else:
        if way == "--calibrate":
            _calibrate(source, changed, stack, options["--within"] or CALIBRATION_SECONDS)
        _step(source, changed, stack, options, as_json)


def _gpu_peak(
    source: str | None, changed: list[str], stack: list[str], options: Mapping[str, Any], way: Any, as_json: bool
) -> None:
    """Print the peak on a GPU that is not there."""
    from assay import api
    from assay.cli.console import note, print_view

    if options["--device"] is None:
        raise UsageError("--absent needs a GPU; name one, as in --absent --device h100")
    asked = {"device": options["--device"], "largest": options["--largest"], "way": way}
    print_view(api.gpu_peak(source, *changed, optimizations=stack, on_progress=note, **asked), as_json)


def _traced(source: str | None, changed: list[str], stack: list[str], as_json: bool) -> None:
    """Print the traced peak, beside the ledger's if the model has one."""
    from assay import api
    from assay.cli.console import print_view
    from assay.report.estimate import TracedView

    found, ledger = api.trace(source, *changed, optimizations=stack), None
    if api.configure(source, changed, stack).model.own is None:
        ledger = api.estimate_every_rank(source, *changed, optimizations=stack).fullest
    print_view(TracedView(found, ledger), as_json, ledger_peak_bytes=ledger and ledger.timeline.peak.nbytes)


def _calibrate(source: str | None, changed: list[str], stacks: list[str], seconds: float) -> None:
    """Time steps of few blocks for each row, in equal shares of the time."""
    from assay import api
    from assay.cli.console import note

    rows = [stacks]
    if len(stacks) > 1:
        known = api.estimate_rows(source, *changed, stacks=stacks)
        rows = [[one] if one in stacks else [] for one in known]
    for stack in rows:
        api.calibrate(source, *changed, optimizations=stack, tell=note, seconds=seconds / len(rows))


def _step(source: str | None, changed: list[str], stacks: list[str], options: Mapping[str, Any], as_json: bool) -> None:
    """Print the prediction of a stack, and several stacks as rows."""
    from assay import api
    from assay.api.training import slower_techniques
    from assay.cli.console import note, print_view
    from assay.hardware.detect import detect
    from assay.report.estimate import EstimateRowsView, EstimateView

    device = options["--device"]
    if device is not None:
        note("the ledger predicts the tensors of the step; --trace follows the program itself, with workspaces")
    if len(stacks) > 1:
        print_view(EstimateRowsView(api.estimate_rows(source, *changed, stacks=stacks, device=device)), as_json)
        return
    every = api.estimate_every_rank(source, *changed, optimizations=stacks, device=device)
    for sentence in slower_techniques(every.run, detect() if device is None else every.fullest.machine):
        note(sentence)
    print_view(EstimateView(every, instants=options["--instants"]), as_json)
