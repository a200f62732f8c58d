"""News of waves that ran elsewhere, and that the coordinator did not live to copy into the study's log.

A job of Slurm outlives its coordinator. Before a study is resumed, no such job may still run, and what the others did
is added to the log.
"""

from collections.abc import Sequence

from assay.errors import UsageError
from assay.executors.elsewhere import WaveFiles
from assay.store.event_log import Event, read_log
from assay.studies.folder import StudyFolder

_LASTING = frozenset({"cell_start", "cell_end", "round"})


def gathered(folder: StudyFolder) -> None:
    """Add what earlier waves did to the study's log. Raises `UsageError` if a wave still runs."""
    known = folder.events()
    for log in sorted((folder.path / "waves").glob("[0-9]*.jsonl")):
        files = WaveFiles(folder.path, int(log.stem))
        if files.running:
            raise UsageError(f"wave {files.number} of the study {folder.id} still runs; {files.stop} would stop it")
        for event in _missing([event for event in read_log(log).events if event["event"] in _LASTING], known):
            folder.append(event)


def _missing(told: Sequence[Event], known: Sequence[Event]) -> list[Event]:
    """Return a wave's events that the study's log lacks, without starts of cells that it has started again since.

    Attempts at a wave may have the same rounds, so only what is known since the start of this attempt counts.
    """
    starts = [known.index(event) for event in told if event["event"] == "cell_start" and event in known]
    since = known[min(starts) :] if starts else ()
    again = {event["cell"] for event in since if event["event"] == "cell_start" and event not in told}
    missing = [event for event in told if event not in since]
    return [event for event in missing if event["event"] != "cell_start" or event["cell"] not in again]
