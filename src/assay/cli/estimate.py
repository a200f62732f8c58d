"""`assay estimate`: memory and work of a step, inference, and the cost of a training, predicted without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import Gpu, GpusPerNode, Json, Nodes, Nproc, Overrides, Source, With, changes, count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.estimator.ranks import EveryRank

_DEVICES = "v100, t4, l4, l40s, a100-40gb, a100, h100, h200, b200, rtx3090, rtx4090, rtx5090, mi300x, tpu-v5e"
_Accuracy = Annotated[
    bool, typer.Option("--accuracy", help="Print the errors of earlier predictions, by device and by technique.")
]
_Page = Annotated[Path | None, typer.Option(metavar="FILE", help="With --accuracy: write the errors as a page, too.")]
_Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help=f"For --inference and --tokens, a datasheet: {_DEVICES}.")
]
_Instants = Annotated[
    bool, typer.Option("--instants", help="Print the highest instant of each part of the step, not the peak's parts.")
]
_Inference = Annotated[
    bool, typer.Option("--inference", help="Predict weights, cache and speed of inference instead of a step.")
]
_Bits = Annotated[int, typer.Option("--bits", metavar="32|16|8|4", help="With --inference: bits of a weight.")]
_Tokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="COUNT", help="Predict hours, energy and money of training on them: 300B."),
]
_Number = Annotated[int, typer.Option("--devices", min=1, help="With --tokens: number of devices.")]
_Mfu = Annotated[
    float | None, typer.Option("--mfu", help="With --tokens: share of the 16-bit peak that is reached; default: 0.4.")
]
_Price = Annotated[float | None, typer.Option("--price", help="With --tokens: money for an hour of one device.")]


_Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="First time steps of few blocks, so that the step time is a measured one.")
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Also trace the program on fake tensors; the only way for a model of your own.")
]
_Within = Annotated[
    float,
    typer.Option("--within", min=1.0, max=86400.0, metavar="SECONDS", help="With --calibrate: time that it may take."),
]


def estimate(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    gpu: Gpu = None,
    instants: _Instants = False,
    inference: _Inference = False,
    tokens: _Tokens = None,
    device: _Device = "a100",
    bits: _Bits = 16,
    devices: _Number = 1,
    mfu: _Mfu = None,
    price: _Price = None,
    calibrate: _Calibrate = False,
    within: _Within = 20.0,
    trace: _Trace = False,
    accuracy: _Accuracy = False,
    page: _Page = None,
    as_json: Json = False,
) -> None:
    """Predict the memory of one optimizer step by the parts of its peak, and its work, in milliseconds.

    With several --with: print the parts of the peak after each is added to those before it, in columns. With
    --calibrate: first time steps of few blocks, and predict the time of a step from them. With --nproc: predict the
    rank with the highest peak, then memory and payload of all ranks, and their joint step time. With --nodes,
    --gpus-per-node or --gpu: plan the step for other machines, from datasheets. With --inference or --tokens: predict
    generation, or the cost of a training, on a device of the market. With --trace: follow the program itself on tensors
    without memory, which serves a model of your own, module:function, as well. With --accuracy: compare the predictions
    of earlier runs with their measurements.

    \b
        assay estimate demo
        assay estimate gpt2-124m --with sdpa_attention+bf16_mixed training.batch_size=16
        assay estimate shakespeare-char-cpu model.vocab_size=65 --calibrate
        assay estimate demo --nproc 2 --with fully_sharded
        assay estimate gpt2-1558m training.batch_size=512 --nodes 4 --gpus-per-node 8 --gpu h100 --with fully_sharded
        assay estimate my.module:build training.batch_size=16 --trace
        assay estimate gpt2-124m --inference --device l4 --bits 8
        assay estimate gpt2-124m --tokens 10B --device h100 --devices 8 --price 2.5
        assay estimate --accuracy --page accuracy.html
    """
    changed, stack = changes(overrides, nproc), with_ or []
    machines = {"nodes": nodes, "gpus_per_node": gpus_per_node, "gpu": gpu}
    elsewhere = any(value is not None for value in machines.values())
    _one_question(inference, tokens is not None, elsewhere, calibrate, trace)
    if accuracy or page is not None:
        _accuracy(accuracy, [*([source] if source else []), *changed, *stack], page, as_json)
    elif trace:
        _traced(source, changed, stack, as_json)
    elif inference:
        _inference(source, overrides or [], device, bits, as_json)
    elif tokens is not None:
        options = {"tokens": count_of("--tokens", tokens), "devices": devices, "mfu": mfu, "price": price}
        _cost(source, overrides or [], device, options, as_json)
    elif not elsewhere:
        _calibrated(source, changed, stack, within if calibrate else None)
        _step(source, changed, stack, instants, as_json)
    else:
        _one_machine(nproc)
        _plan(source, changed, stack, machines, as_json)


def _one_machine(nproc: int | None) -> None:
    """Raise `UsageError` if a plan of other machines also has processes of this one."""
    from assay.errors import UsageError

    if nproc is not None:
        raise UsageError("--nproc describes this machine and --nodes other machines; give only one of them")


def _one_question(inference: bool, tokens: bool, elsewhere: bool, calibrate: bool, trace: bool) -> None:
    """Raise `UsageError` if options ask more than one question."""
    from assay.errors import UsageError

    if inference and tokens:
        raise UsageError("--inference and --tokens ask two questions; give only one of them")
    if trace and (inference or tokens or elsewhere or calibrate):
        raise UsageError("--trace is of one step on this machine; leave out --calibrate and the options about others")
    if calibrate and (inference or tokens or elsewhere):
        raise UsageError("--calibrate times steps on this machine; leave out the options about others")


def _traced(source: str | None, changed: list[str], stack: list[str], as_json: bool) -> None:
    """Print the traced peak, beside the ledger's if the model has one."""
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.traced import beside_ledger

    found = api.trace(source, *changed, optimizations=stack)
    ledger = None
    if api.configure(source, changed, stack).model.own is None:
        ledger = api.estimate_every_rank(source, *changed, optimizations=stack).fullest
    if as_json:
        print_json({**found.to_dict(), "ledger_peak_bytes": None if ledger is None else ledger.timeline.peak.nbytes})
    else:
        print_blocks(found.report() if ledger is None else beside_ledger(found, ledger))


def _calibrated(source: Source, overrides: "Sequence[str]", stack: "Sequence[str]", seconds: float | None) -> None:
    """Time steps of few blocks for so many seconds, if there are any."""
    from assay import api
    from assay.cli.console import note

    if seconds is None:
        return
    api.calibrate(source, *overrides, optimizations=stack, seconds=seconds, tell=note)


def _step(source: str | None, changed: list[str], stacks: list[str], instants: bool, as_json: bool) -> None:
    """Print the prediction of the whole stack, and the parts of its peak as each of several stacks is added."""
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.estimate import estimate_report

    found: dict[str, EveryRank] = {}
    if len(stacks) > 1 and not instants:
        found = api.estimate_stacks(source, *changed, optimizations=stacks)
        *_, every = found.values()
    else:
        every = api.estimate_every_rank(source, *changed, optimizations=stacks)
    if as_json:
        columns = {heading: one.fullest.peak_parts for heading, one in found.items()}
        print_json({**every.to_dict(), **({"peak_parts_by_stack": columns} if columns else {})})
    else:
        print_blocks(estimate_report(every, instants=instants, stacks=found))


def _plan(source: str | None, changed: list[str], stack: list[str], machines: dict[str, Any], as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.plan import plan_report

    given = {"gpu": "a100"} | {name: value for name, value in machines.items() if value is not None}
    where = api.project(source, *changed, optimizations=stack, **given)
    print_json(where.to_dict()) if as_json else print_blocks(plan_report(where))


def _inference(source: str | None, changed: list[str], device: str, bits: int, as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.inference import inference_report, inference_values

    found = api.inference(source, *changed, device=device, bits=bits)
    print_json(inference_values(found)) if as_json else print_blocks(inference_report(found))


def _cost(source: str | None, changed: list[str], device: str, options: dict[str, Any], as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.inference import budget_report, budget_values

    found = api.training_cost(source, *changed, device=device, **options)
    print_json(budget_values(found)) if as_json else print_blocks(budget_report(found))


def _accuracy(asked: bool, words: list[str], page: Path | None, as_json: bool) -> None:
    """Print the errors of earlier predictions. Raises `UsageError` if a configuration is given as well."""
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.errors import UsageError, shown
    from assay.report.page import check_page

    if not asked:
        raise UsageError("--page is the page of --accuracy; add --accuracy")
    if words:
        raise UsageError(f"--accuracy is of all runs of the home, and not of {shown(words[0])}; leave it out")
    if page is not None:
        check_page(page)
    found = api.accuracy()
    written = None if page is None else str(api.write_accuracy(found, page))
    if as_json:
        print_json({**found.to_dict(), "page": written})
    else:
        print_blocks(found.report())
        if written is not None:
            typer.echo(written)
