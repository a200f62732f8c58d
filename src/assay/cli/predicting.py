"""The answers of `assay estimate`: each is computed by the API and printed."""

from typing import TYPE_CHECKING, Any

from assay.config.source import names_a_function as is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.estimator.ranks import EveryRank


def answer(way: str, source: str | None, changed: list[str], options: "Mapping[str, Any]", as_json: bool) -> None:
    """Print the answer, found in a way that `assay estimate` knows."""
    stack = options["--with"] or []
    if way == "--absent" or (options["--device"] is not None and (way == "--trace" or is_own(source))):
        gpu_peak(source, changed, stack, options, None if way == "--device" else way.strip("-"), as_json)
    elif way == "--trace":
        _traced(source, changed, stack, as_json)
    else:
        if way == "--calibrate":
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
