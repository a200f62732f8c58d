"""The answers of `assay estimate`: each is computed by the API and printed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from assay.cli.belonging import arguments
from assay.cli.options import count_of
from assay.config.source import names_a_function as is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.estimator.ranks import EveryRank

MACHINES = ("--nodes", "--gpus-per-node", "--gpu")
"""Options of a plan for other machines."""


def answer(question: str, source: str | None, changed: list[str], options: "Mapping[str, Any]", as_json: bool) -> None:
    """Print the answer to a question."""
    stack = options["--with"] or []
    if question == "--accuracy":
        _accuracy([*([source] if source else []), *changed], options["--page"], as_json)
    elif question == "--absent" or (options["--device"] is not None and (question == "--trace" or is_own(source))):
        way = None if question == "--device" else question.strip("-")
        gpu_peak(source, changed, stack, options, way, as_json)
    elif question == "--trace":
        _traced(source, changed, stack, as_json)
    elif question == "--inference":
        _inference(source, changed, arguments(options, "--device", "--bits"), as_json)
    elif question == "--tokens":
        count = {"tokens": count_of("--tokens", options["--tokens"])}
        asked = count | arguments(options, "--device", "--devices", "--mfu", "--price")
        _cost(source, changed, asked | {"optimizations": stack}, as_json)
    elif question in MACHINES:
        _plan(source, changed, stack, {"gpu": "a100"} | arguments(options, *MACHINES), as_json)
    else:
        if question == "--calibrate":
            _calibrate(source, changed, stack, options["--within"])
        _step(source, changed, stack, options, as_json)


def gpu_peak(
    source: str | None, changed: list[str], stack: list[str], options: "Mapping[str, Any]", way: Any, as_json: bool
) -> None:
    """Print the peak on a GPU that is not there."""
    from assay import api
    from assay.cli.console import note, print_blocks, print_json
    from assay.errors import UsageError
    from assay.report.gpu_peak import gpu_peak_report, gpu_peak_values

    if options["--device"] is None:
        raise UsageError("--absent needs a GPU; name one, as in --absent --device h100")
    asked = {"device": options["--device"], "largest": options["--largest"], "way": way}
    found = api.gpu_peak(source, *changed, optimizations=stack, on_progress=note, **asked)
    print_json(gpu_peak_values(found)) if as_json else print_blocks(gpu_peak_report(found))


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


def _calibrate(source: str | None, changed: list[str], stack: list[str], within: float | None) -> None:
    """Time steps of few blocks."""
    from assay import api
    from assay.cli.console import note

    limit = {} if within is None else {"seconds": within}
    api.calibrate(source, *changed, optimizations=stack, tell=note, **limit)


def _step(
    source: str | None, changed: list[str], stacks: list[str], options: "Mapping[str, Any]", as_json: bool
) -> None:
    """Print the prediction of the whole stack, and the parts of its peak as each of several stacks is added."""
    from assay import api
    from assay.cli.console import note, print_blocks, print_json
    from assay.report.estimate import estimate_report

    found: dict[str, EveryRank] = {}
    device, instants = options["--device"], options["--instants"]
    if device is not None:
        note("the ledger predicts the tensors of the step; --trace follows the program itself, with workspaces")
    if len(stacks) > 1 and not instants:
        found = api.estimate_stacks(source, *changed, optimizations=stacks, device=device)
        *_, every = found.values()
    else:
        every = api.estimate_every_rank(source, *changed, optimizations=stacks, device=device)
    if as_json:
        columns = {heading: one.fullest.peak_parts for heading, one in found.items()}
        print_json({**every.to_dict(), **({"peak_parts_by_stack": columns} if columns else {})})
    else:
        print_blocks(estimate_report(every, instants=instants, stacks=found))


def _plan(source: str | None, changed: list[str], stack: list[str], machines: dict[str, Any], as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.plan import plan_report

    where = api.project(source, *changed, optimizations=stack, **machines)
    print_json(where.to_dict()) if as_json else print_blocks(plan_report(where))


def _inference(source: str | None, changed: list[str], options: dict[str, Any], as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.inference import inference_report, inference_values

    found = api.inference(source, *changed, **options)
    print_json(inference_values(found)) if as_json else print_blocks(inference_report(found))


def _cost(source: str | None, changed: list[str], options: dict[str, Any], as_json: bool) -> None:
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.cost import budget_report, budget_values

    found = api.training_cost(source, *changed, **options)
    print_json(budget_values(found)) if as_json else print_blocks(budget_report(found))


def _accuracy(words: list[str], page: Path | None, as_json: bool) -> None:
    """Print the errors of earlier predictions. Raises `UsageError` if a configuration is given as well."""
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.errors import UsageError, shown
    from assay.report.page import check_page

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
