"""A stream of documents as batch source; every checkpoint contains its position."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from assay.config import ResolvedRun
from assay.data.documents import DatasetDocuments, FileDocuments
from assay.data.streaming import DocumentBatches
from assay.records.trace import DOCUMENTS
from assay.step.prepared import PreparedSequences
from assay.step.program import MicroBatch, Program, Share


def stream_documents(
    program: Program, run: ResolvedRun, *, path: str | None, dataset: str | None, split: str
) -> Program:
    """Return the program that trains on the documents of files, or of a data set if no path is given."""
    shape = (program.encode, run.training.batch_size, run.model.context_length)
    read: FileDocuments | DatasetDocuments
    if path is not None:
        read = FileDocuments(path, run.data)
    else:
        read = DatasetDocuments(dataset or "", split, run.data.text_field)
    source = DocumentBatches(read, *shape, remarks=read.remarks)
    prepared = PreparedSequences(DOCUMENTS)

    def batches(step: int, share: Share) -> Sequence[MicroBatch]:
        ids, targets = source.at(step, share)
        prepared.sequences += len(ids)
        return [(torch.from_numpy(ids), torch.from_numpy(targets))]

    return replace(
        program,
        batches=batches,
        stateful={**program.stateful, "documents": source},
        witnesses=(*program.witnesses, prepared),
    )
