"""The page of one run: its summary and proofs, its configuration, and its differences to another run."""

from collections.abc import Iterable
from typing import Any

from assay.config.home import Home
from assay.dashboard.runs.live import VALUES
from assay.dashboard.runs.results import Results
from assay.errors import UsageError
from assay.records.run import RunResult
from assay.report.comparison.wording import unit_of_loss, value_check
from assay.report.kit.blocks import Block, Table
from assay.report.run import RunView, flat, proof
from assay.report.runs import changed_rows, configurations, environments, figures
from assay.store.lookup import find


def content(result: RunResult, home: Home) -> dict[str, Any]:
    """Return what the page of a run shows, without its curves."""
    return {
        "run": result.run,
        "status": result.status.value.replace("_", " "),
        "live": result.status.value == "running",
        "summary": list(RunView(result, home).blocks()),
        "proofs": _proofs(result),
        "sample": result.loss.sample,
        "configuration": Table.of(("key", "value"), flat(result.config.model_dump(mode="json")).items()),
        "environment": None
        if result.provenance.environment is None
        else Table.of(("fact", "value"), flat(result.provenance.environment.model_dump(mode="json")).items()),
        "counted": result.config.counted,
        "unit_of_loss": unit_of_loss(result.config),
        "predicted_step_seconds": None if result.predicted is None else result.predicted.step_seconds,
    }


def against(result: RunResult, other: str, home: Home, results: Results) -> tuple[list[Block], str]:
    """Return the differences of a run to another one, and a sentence if there is no such run."""
    try:
        theirs = results.of(find(home, other))
    except UsageError as error:
        return [], str(error)
    return list(differences(result, theirs)), ""


def differences(ours: RunResult, theirs: RunResult) -> Iterable[Block]:
    """Yield tables of what differs between two runs."""
    here, there = f"this run ({ours.run})", f"the other ({theirs.run})"
    for title, pairs in (("setting", configurations(ours, theirs)), ("environment", environments(ours, theirs))):
        if pairs:
            yield Table.of((title, here, there), [(key, *pair) for key, pair in pairs.items()])
        else:
            yield f"No {title} differs."
    yield Table.of(("figure", here, there, "change"), changed_rows(figures(ours, theirs)), (here, there, "change"))


def _proofs(result: RunResult) -> dict[str, str]:
    """Return the sentence on each thing that was proven, the latest if there are several, as `live` sends them."""
    found = {one.optimization: proof(one) for one in result.proof.evidence}
    return found if result.proof.values is None else {**found, VALUES: f"values: {value_check(result.proof.values)}"}
