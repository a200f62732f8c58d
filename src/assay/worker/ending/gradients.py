"""Agreement of micro-batches' gradients in the record of a run that asks for it, at its newest checkpoint.

Rank 0 computes them with the whole model, and the other ranks wait.
"""

from collections.abc import Callable

from assay.config.home import Home
from assay.errors import UsageError, first_line
from assay.instruments.gradients.agreement import agreement
from assay.parallel.ranks import Ranks
from assay.store.run_folder import RunFolder
from assay.store.trained_model import trained
from assay.training.stops import Interrupted
from assay.worker.processes.channel import Channel
from assay.worker.result import Findings

_STOPPED = "interrupted while gradients were compared, after all steps; its last checkpoint is kept"


def add_gradient_probe(findings: Findings, folder: RunFolder, ranks: Ranks, channel: Channel) -> None:
    """Add the comparison of as many micro-batches as the run asks for.

    One that cannot be had is a note, because the run itself is done. Raises `Interrupted`, on every rank.
    """

    def tell(done: int, total: int) -> None:
        findings.phases.progressed(done, total)
        if channel.interrupted:
            raise Interrupted(_STOPPED)

    stopped = ""
    if ranks.rank == 0:
        try:
            _add(findings, folder, tell)
        except Interrupted as stop:
            stopped = str(stop)
        except (UsageError, RuntimeError, MemoryError) as error:
            findings.notes.append(f"gradients of micro-batches were not compared: {first_line(error)}")
    if any(ranks.gather(stopped)):
        raise Interrupted(_STOPPED)


def _add(findings: Findings, folder: RunFolder, tell: Callable[[int, int], None]) -> None:
    run = findings.spec.config
    found = trained(Home(folder.path.parent.parent), folder.id)
    findings.gradient_probe = agreement(
        found.model(),
        found.data_folder,
        run=found.run,
        seed=run.seed,
        steps=found.steps,
        micro_batches=run.training.gradient_probe,
        sequences=run.training.batch_size,
        tell=tell,
    )
