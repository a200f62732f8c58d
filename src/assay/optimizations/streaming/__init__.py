"""Train on documents that are read, tokenized and packed during training, from files or a hub's data set.

Nothing is prepared and nothing is stored twice, so the documents may be of any size. In exchange each step waits until
its text is read and tokenized; the record's `data wait` shows this. Documents are streamed in their own order and
packed one after the other. At their end the stream starts over. Checkpoints store the position, so a resumed run
repeats none. Prepared batches are drawn at random instead, so this trains on other batches.

The run's own corpus stays in use: its tokenizer makes the tokens, and evaluation runs on its validation split. The
documents must not contain that split; nothing checks it. Every rank reads all documents and takes its rows.
"""

import os
from typing import TYPE_CHECKING, ClassVar

from pydantic import field_validator

from assay.config import ResolvedRun
from assay.config.base import absolute
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import DOCUMENTS, Trace
from assay.reference.expected import Expected, Stream
from assay.units import format_seconds

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_TRAIN = "train"


class Streaming(Optimization):
    """Training batches packed from documents during training."""

    path: str | None = None
    """Text file, folder, glob or file of records, as `data.path`; `data.text_field` names the field of records."""
    dataset: str | None = None
    """Data set of the Hugging Face hub, or a folder that its library reads; excludes `path`."""
    split: str = _TRAIN
    """Split of the data set."""

    title: ClassVar = "streamed documents"
    stage: ClassVar = Stage.SOURCE
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "preparation: its time, its memory and the tokens on disk"
    pays: ClassVar = "reading and tokenizing in every step; documents in their own order, not drawn at random"
    sources: ClassVar = ("https://huggingface.co/docs/datasets/stream",)
    claims: ClassVar = frozenset({"reading of batches"})

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """Make the path absolute, because a run may be resumed from another folder."""
        return None if path is None else str(absolute(path))

    @field_validator("dataset")
    @classmethod
    def _absolute_where_local(cls, dataset: str | None) -> str | None:
        """Make a local folder absolute; `datasets`, too, prefers a folder of this name to the hub."""
        local = dataset is not None and os.path.isdir(absolute(dataset))
        return cls._absolute(dataset) if local else dataset

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if self.path is None and self.dataset is None:
            raise Conflict("streaming needs documents: set streaming:path=FOLDER or streaming:dataset=NAME")
        if self.path is not None and (self.dataset is not None or self.split != _TRAIN):
            other = "dataset" if self.dataset is not None else "split"
            raise Conflict(f"streaming:{other} selects documents of a hub, and streaming:path files; leave one out")
        from assay.data.documents import check_dataset, check_files

        if self.path is not None:
            check_files(self.path, run.data)
            return
        from importlib.util import find_spec

        if find_spec("datasets") is None:
            raise Unavailable("streaming a data set needs the package datasets; pip install 'assay[hf]'")
        check_dataset(self.dataset or "", self.split, run.data.text_field)

    def remarks(self, run: ResolvedRun) -> tuple[str, ...]:
        from assay.data.documents import FileDocuments

        return () if self.path is None else tuple(map(str, FileDocuments(self.path, run.data).glance()))

    def remarks_on_records(self, run: ResolvedRun) -> tuple[str, ...]:
        from assay.data.documents import DatasetDocuments, FileDocuments

        if self.path is not None:
            return tuple(map(str, FileDocuments(self.path, run.data).glance_at_records()))
        found = DatasetDocuments(self.dataset or "", self.split, run.data.text_field)
        return tuple(map(str, found.glance_at_records()))

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.streaming.step import stream_documents

        return stream_documents(program, run, path=self.path, dataset=self.dataset, split=self.split)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.changed(stream=Stream(path=self.path, dataset=self.dataset, split=self.split))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        packed = trace.batch.prepared.get(DOCUMENTS, 0)
        observed = f"{packed} of {trace.batch.sequences} sequences packed from streamed documents; "
        observed += f"the step waited {format_seconds(trace.batch.data_seconds)} for them"
        return self.evidence(observed, 0 < packed == trace.batch.sequences)
