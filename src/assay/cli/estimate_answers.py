"""The answers of `assay estimate`: each is computed by the API and printed."""

from typing import TYPE_CHECKING, Any

from assay.config.source import names_a_function as is_own
from assay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

CALIBRATION_SECONDS = 20.0
"""Time that a calibration may take, if nothing else is asked for."""


def answer(way: str, source: str | None, changed: list[str], options: "Mapping[str, Any]", as_json: bool) -> None:
    """Print the answer, found in a way that `assay estimate` knows."""
    stack = options["--with"] or []
    followed = "a model of your own" if is_own(source) else "--instants" if options["--instants"] else way
    if len(stack) > 1 and followed in ("--trace", "--absent", "--instants", "a model of your own"):
        raise UsageError(f"{followed} has one row; join the techniques, as in --with {'+'.join(stack)}")
    if way == "--absent" or (options["--device"] is not None and (way == "--trace" or is_own(source))):
        gpu_peak(source, changed, stack, options, None if way == "--device" else way.strip("-"), as_json)
    elif way == "--trace":
        _traced(source, changed, stack, as_json)
    else:
        if way == "--calibrate":
            _calibrate(source, changed, stack, options["--within"] or CALIBRATION_SECONDS)
        _step(source, changed, stack, options, as_json)


def gpu_peak(
    source: str | None, changed: list[str], stack: list[str], options: "Mapping[str, Any]", way: Any, as_json: bool
) -> None:
    """Print the peak on a GPU that is not there."""
    from assay import api
    from assay.cli.console import note, print_blocks, print_json
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
    from assay.report.estimate import beside_ledger

    found = api.trace(source, *changed, optimizations=stack)
    ledger = None
    if api.configure(source, changed, stack).model.own is None:
        ledger = api.estimate_every_rank(source, *changed, optimizations=stack).fullest
    if as_json:
        print_json({**found.to_dict(), "ledger_peak_bytes": None if ledger is None else ledger.timeline.peak.nbytes})
    else:
        print_blocks(found.report() if ledger is None else beside_ledger(found, ledger))


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


def _step(
    source: str | None, changed: list[str], stacks: list[str], options: "Mapping[str, Any]", as_json: bool
) -> None:
    """Print the prediction of a stack, and several stacks as rows."""
    from assay import api
    from assay.cli.console import note, print_blocks, print_json
    from assay.report.estimate import estimate_report, rows_report

    device = options["--device"]
    if device is not None:
        note("the ledger predicts the tensors of the step; --trace follows the program itself, with workspaces")
    if len(stacks) > 1:
        rows = api.estimate_rows(source, *changed, stacks=stacks, device=device)
        if as_json:
            print_json({"rows": {heading: one.to_dict() for heading, one in rows.items()}})
        else:
            print_blocks(rows_report(rows))
        return
    every = api.estimate_every_rank(source, *changed, optimizations=stacks, device=device)
    print_json(every.to_dict()) if as_json else print_blocks(estimate_report(every, instants=options["--instants"]))
