"""The end of a run's record: the documents it read, a text of its model, and the agreement of gradients."""

from collections.abc import Callable

from assay.config.home import Home
from assay.data.streaming import DocumentBatches
from assay.errors import UsageError, first_line
from assay.instruments.gradient_agreement import agreement
from assay.parallel.process_rank import Ranks
from assay.store.run_folder import RunFolder
from assay.store.trained_model import trained
from assay.training.loop import Loop
from assay.training.sample import sample
from assay.training.stops import Interrupted
from assay.worker.processes.channel import Channel
from assay.worker.result import Findings


def documents_seen(loop: Loop) -> int | None:
    """Return the documents of which training has read a token.

    None if the text is no stream, or if worker processes read it: only they know.
    """
    source = _stream(loop)
    return None if source is None else source.begun(loop.position.step)


def documents_left_out(loop: Loop) -> list[str]:
    """Return a sentence for each reason why parts of a stream are not read; empty if the text is no stream."""
    source = _stream(loop)
    return [] if source is None else list(map(str, source.remarks()))


def _stream(loop: Loop) -> DocumentBatches | None:
    source = loop.step.program.stateful.get("documents")
    return source if isinstance(source, DocumentBatches) else None


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
