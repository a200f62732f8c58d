"""A short text of the trained model in the record of its run, from the run's newest checkpoint."""

from assay.config.home import Home
from assay.errors import UsageError, first_line
from assay.store.run_folder import RunFolder
from assay.store.trained_model import trained
from assay.training.sample import sample
from assay.worker.result import Findings

MOST_PARAMETERS = 20_000_000
"""Size up to which a text takes about a second on one core."""


def add_sample(findings: Findings, folder: RunFolder) -> None:
    """Add a text to the findings, unless the model is a user's own or has more than 20 million parameters.

    A text that cannot be had is a note, because the run itself is done.
    """
    if findings.spec.config.model.own is not None or (findings.parameters or 0) > MOST_PARAMETERS:
        return
    try:
        found = trained(Home(folder.path.parent.parent), folder.id)
        findings.sample = sample(found.checkpoint, found.config, found.tokenizer())
    except (UsageError, RuntimeError, MemoryError) as error:
        findings.notes.append(f"no text was sampled: {first_line(error)}")
