"""News of waves that ran elsewhere, and that the coordinator did not live to copy into the study's log.

A job of Slurm outlives its coordinator. Before a study is resumed, no such job may still run, and what the others did
is added to the log.
"""

from assay.errors import UsageError
from assay.executors.elsewhere import WaveFiles
from assay.store.event_log import read_log
from assay.studies.folder import StudyFolder

_LASTING = frozenset({"cell_start", "cell_end", "round"})


def gathered(folder: StudyFolder) -> None:
    """Add what earlier waves did to the study's log. Raises `UsageError` if a wave still runs."""
    known = folder.events()
    for log in sorted((folder.path / "waves").glob("[0-9]*.jsonl")):
        files = WaveFiles(folder.path, int(log.stem))
        if files.running:
            raise UsageError(f"wave {files.number} of the study {folder.id} still runs; {files.stop} would stop it")
        for event in read_log(log).events:
            if event["event"] in _LASTING and event not in known:
                folder.append(event)
