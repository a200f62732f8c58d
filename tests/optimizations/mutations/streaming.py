"""Streamed documents, wrong."""

from pathlib import Path

from optimizations.mutations.mutant import Mutant, replaced, rewritten

RUN = {
    "model": {"vocab_size": 256},
    "stack": f"streaming:path={Path(__file__).with_name('documents.jsonl')}",
}

_AT, _TAKE = "assay.data.streaming:DocumentBatches.at", "assay.data.streaming:DocumentBatches._take"
_READ = "assay.data.streaming:DocumentBatches._read_from"
_STREAMED = "assay.optimizations.streaming.step:stream_documents"
_ROWS = "np.ascontiguousarray(one.reshape(shape)[index::count])"

MUTANTS = (
    Mutant(
        "targets not shifted",
        "The targets are the inputs themselves.",
        rewritten(_AT, ("(block[:-1], block[1:])", "(block[:-1], block[:-1])")),
    ),
    Mutant(
        "stands still",
        "Every step trains on the first batch.",
        rewritten(_STREAMED, ("source.at(step, share)", "source.at(0, share)")),
    ),
    Mutant(
        "batches overlap",
        "A batch begins half a batch before the end of the one before.",
        rewritten(_TAKE, ("    place, ids = self", "    used = used // 2\n    place, ids = self")),
    ),
    Mutant(
        "a token lost",
        "The first token of every batch after the first is lost.",
        rewritten(_TAKE, ("place.token + used, begun), ids[used:]", "place.token + used + 1, begun), ids[used + 1 :]")),
    ),
    Mutant(
        "no line breaks",
        "Documents follow each other without a line break.",
        replaced("assay.data.streaming:_ended", lambda text: text),
    ),
    Mutant(
        "columns",
        "A batch is filled column by column, so that no row is a text.",
        rewritten(_AT, (_ROWS, "np.ascontiguousarray(one.reshape(shape[::-1]).T[index::count])")),
    ),
    Mutant(
        "second document first",
        "The first document is passed over.",
        rewritten(_READ, ("place.document, place.token, place.document > 0", "place.document + 1, place.token, True")),
    ),
    Mutant(
        "last row repeated",
        "The last row of a batch is its first one again.",
        rewritten(_AT, (_ROWS, "np.ascontiguousarray(one.reshape(shape)[[*range(shape[0] - 1), 0]][index::count])")),
    ),
    Mutant(
        "prepared tokens",
        "The batches are those of the prepared corpus.",
        rewritten(_STREAMED, ("ids, targets = source.at(step, share)", "return program.batches(step, share)")),
    ),
    Mutant(
        "begins again late",
        "Late in the run the stream begins again.",
        rewritten(_AT, ("self._blocks[step]", "self._blocks[min(self._blocks)]"), late=True),
        late=True,
    ),
)
