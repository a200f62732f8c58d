"""Batches from documents that are read, tokenized and packed on the fly, without a copy on disk.

The tokens of all documents form one stream, in which each document with text ends in a line break. A step of B
sequences of T tokens takes the next B·T tokens, row after row, and one more as the last target. After the last document
the stream continues with the first. The start of a step's tokens depends on the documents alone. It is stored as a
place: the number of documents before it, and the number of tokens of the next document.

A checkpoint stores the latest places. A resumed run skips the documents before its place without tokenizing them, and
repeats no tokens. Any other step can be requested too; it is found by reading from the nearest place before it.

Caveats: adjacent sequences of a batch are adjacent in the text, so the documents should be shuffled. Every rank reads
and tokenizes all documents, and takes its rows.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.data.documents import Documents
from assay.data.prepared_folder import Batch
from assay.errors import UsageError
from assay.records.corpus import Remark

Encode = Callable[[str], Iterable[npt.NDArray[Any]]]

_KEPT = 4
"""Number of latest steps that are kept, so that discarded and prefetched steps can be requested again."""


@dataclass(frozen=True)
class Place:
    """Position of a token: number of the document, and of the token in it, from 0."""

    document: int = 0
    token: int = 0
    begun: int | None = 0
    """Documents of which a token lies before this one, in all passes; None after a checkpoint that did not count."""


class DocumentBatches:
    """Training batches from a stream of documents. `read` gives the documents, `encode` their ids in pieces.

    `remarks` tells what is left out of the documents so far.
    """

    def __init__(
        self,
        read: Documents,
        encode: Encode,
        batch_size: int,
        context_length: int,
        remarks: Callable[[], Sequence[Remark]] = tuple,
    ) -> None:
        self._read, self._encode, self.remarks = read, encode, remarks
        self._rows, self._length = batch_size, context_length
        self._places: dict[int, Place] = {}
        """Start of the latest steps, by step; step 0 starts at the first token."""
        self._blocks: dict[int, npt.NDArray[np.int64]] = {}
        self._step: int | None = None
        """Step that the open reader gives next; None if there is no usable reader."""
        self._reader: Iterator[tuple[Place, npt.NDArray[Any]]] = iter(())
        self._waiting: deque[tuple[Place, npt.NDArray[Any]]] = deque()
        """Tokens that are read and not yet used, with the place of the first one of each piece."""

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Batch:
        """Return the batch of a step, `[rows, context_length]` each, int64.

        `share=(index, count)` selects every count-th row, from the index-th on. Raises `UsageError` if the documents
        cannot be read or hold no text.
        """
        if step not in self._blocks:
            self._stand_before(step)
            try:
                while step not in self._blocks:
                    self._take()
            except BaseException:
                self._step = None  # a reader that failed cannot continue
                raise
        index, count = share
        shape, block = (self._rows, self._length), self._blocks[step]
        ids, targets = (np.ascontiguousarray(one.reshape(shape)[index::count]) for one in (block[:-1], block[1:]))
        return ids, targets

    def state_dict(self) -> dict[str, Any]:
        """Return the latest places as `[step, document, token, begun]`."""
        return {"places": [[step, *astuple(place)] for step, place in self._places.items()]}

    def begun(self, step: int) -> int | None:
        """Return the number of documents of which the steps before this one read a token; None if it is not known.

        A document that is read once more counts once more. It is known of the latest steps.
        """
        place = self._places.get(step)
        return None if place is None else place.begun

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the places of `state_dict`."""
        # Checkpoints of earlier versions have no number of documents.
        self._places = {step: Place(*place, *[None] * (3 - len(place))) for step, *place in state["places"]}
        self._step = None

    def _stand_before(self, step: int) -> None:
        known = max((one for one in self._places if one <= step), default=0)
        if self._step is None or not known <= self._step <= step:
            self._step, self._reader = known, self._read_from(self._places.get(known, Place()))
            self._waiting.clear()

    def _take(self) -> None:
        """Read the next step's tokens, and keep them and the place after them."""
        used = self._rows * self._length
        there = sum(len(ids) for _, ids in self._waiting)
        while there <= used:
            self._waiting.append(next(self._reader))
            there += len(self._waiting[-1][1])
        block = np.concatenate([ids for _, ids in self._waiting])[: used + 1].astype(np.int64)
        while used >= len(self._waiting[0][1]):
            used -= len(self._waiting.popleft()[1])
        place, ids = self._waiting.popleft()
        begun = _sum(place.begun, used > 0 and not place.token)
        self._waiting.appendleft((Place(place.document, place.token + used, begun), ids[used:]))
        step = self._step or 0
        self._step = step + 1
        _keep(self._blocks, step, block)
        _keep(self._places, self._step, self._waiting[0][0])

    def _read_from(self, place: Place) -> Iterator[tuple[Place, npt.NDArray[Any]]]:
        """Yield tokens from a place on, repeating the documents without end. Raises `UsageError` if there are none."""
        document, skipped, found = place.document, place.token, place.document > 0
        begun = _sum(place.begun, -(place.token > 0))  # documents before the first that is read here
        while True:
            for text in self._read(document):
                token = 0
                for ids in self._encode(_ended(text)) if text.strip() else ():
                    left = ids[max(skipped - token, 0) :]
                    if len(left):
                        first = token + len(ids) - len(left)
                        yield Place(document, first, _sum(begun, first > 0)), left
                        found = True
                    token += len(ids)
                document, skipped, begun = document + 1, 0, _sum(begun, token > 0)
            if not found:
                raise UsageError("the documents to stream contain no text; name others")
            document, skipped, found = 0, 0, False


def _sum(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _keep(by_step: dict[int, Any], step: int, value: Any) -> None:
    """Store a step's value as the latest, and drop the oldest if more than `_KEPT` are stored."""
    by_step.pop(step, None)
    by_step[step] = value
    while len(by_step) > _KEPT:
        del by_step[next(iter(by_step))]
