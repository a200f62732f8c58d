"""Agreement of micro-batches' gradients in the record of a run that asks for it, at its newest checkpoint."""

from collections.abc import Callable

from assay.config.home import Home
from assay.errors import UsageError, first_line
from assay.instruments.gradients.agreement import agreement
from assay.store.run_folder import RunFolder
from assay.store.trained_model import trained
from assay.worker.result import Findings


def add_gradient_probe(findings: Findings, folder: RunFolder, progressed: Callable[[int, int], None]) -> None:
    """Add the comparison of as many micro-batches as the run asks for. `progressed` gets those done and all of them.

    One that cannot be had is a note, because the run itself is done.
    """
    run = findings.spec.config
    wanted = run.training.gradient_probe
    try:
        if run.ranks > 1:
            raise UsageError("this needs a run on one rank; `assay gradients` compares them at its checkpoint")
        found = trained(Home(folder.path.parent.parent), folder.id)
        findings.gradient_probe = agreement(
            found.model(),
            found.data_folder,
            run=found.run,
            seed=run.seed,
            steps=found.steps,
            micro_batches=wanted,
            sequences=run.training.batch_size,
            tell=lambda done: progressed(done, wanted),
        )
    except (UsageError, RuntimeError, MemoryError) as error:
        findings.notes.append(f"gradients of micro-batches were not compared: {first_line(error)}")
