"""The number of documents that a run has read, for runs whose text is a stream of documents."""

from assay.data.streaming import DocumentBatches
from assay.training.loop import Loop


def documents_seen(loop: Loop) -> int | None:
    """Return the documents of which training has read a token.

    None if the text is no stream, or if worker processes read it: only they know.
    """
    source = loop.step.program.stateful.get("documents")
    return source.begun(loop.position.step) if isinstance(source, DocumentBatches) else None
