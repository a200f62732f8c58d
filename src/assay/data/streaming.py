"""Batches out of documents that are read, tokenized and packed as they come, without a copy on disk.

The tokens of all documents make one stream, in which each document with text ends in a line break. A step of B
sequences of T tokens takes the next B·T of it, row after row, and one more as the last target; when the documents are
through, they begin again. So where a step's tokens begin depends on the documents alone, and is known as a place: so
many documents, and so many tokens of the next. A checkpoint carries the latest places, from which a resumed run goes
on: documents before are passed over, not tokenized again, and none is trained on twice. Any other step can be asked
for, too; it is found by reading on from the nearest place before it.

Caveats: sequences that lie side by side in a batch are neighbours in the text, so documents should come in a mixed
order; every rank reads and tokenizes all documents, and takes its rows.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.data.batches import Batch
from assay.data.documents import Documents
from assay.errors import UsageError

Encode = Callable[[str], Iterable[npt.NDArray[Any]]]

_KEPT = 4
"""Latest steps that can be asked for again without reading: those thrown away, or fetched ahead."""


@dataclass(frozen=True)
class Place:
    """A token of the documents."""

    document: int = 0
    token: int = 0


class DocumentBatches:
    """Training batches of a stream of documents."""

    def __init__(self, read: Documents, encode: Encode, batch_size: int, context_length: int) -> None:
        self._read, self._encode = read, encode
        self._rows, self._length = batch_size, context_length
        self._places: dict[int, Place] = {}
        """Where the latest steps begin; the first one begins at the first token."""
        self._blocks: dict[int, npt.NDArray[np.int64]] = {}
        self._step: int | None = None
        """At which the open reader stands."""
        self._reader: Iterator[tuple[Place, npt.NDArray[Any]]] = iter(())
        self._waiting: deque[tuple[Place, npt.NDArray[Any]]] = deque()
        """Tokens that were read and not used up."""

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Batch:
        """The batch of a step; `share=(index, count)` gives every count-th of its rows, from the index-th on."""
        if step not in self._blocks:
            self._stand_before(step)
            try:
                while step not in self._blocks:
                    self._take()
            except BaseException:
                self._step = None  # a reader that failed gives no more
                raise
        index, count = share
        shape, block = (self._rows, self._length), self._blocks[step]
        ids, targets = (np.ascontiguousarray(one.reshape(shape)[index::count]) for one in (block[:-1], block[1:]))
        return ids, targets

    def state_dict(self) -> dict[str, Any]:
        """The latest places, by step."""
        return {"places": [[step, place.document, place.token] for step, place in self._places.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the places that `state_dict` gave."""
        self._places = {step: Place(document, token) for step, document, token in state["places"]}
        self._step = None

    def _stand_before(self, step: int) -> None:
        known = max((one for one in self._places if one <= step), default=0)
        if self._step is None or not known <= self._step <= step:
            self._step, self._reader = known, self._read_from(self._places.get(known, Place()))
            self._waiting.clear()

    def _take(self) -> None:
        """Read one step's tokens."""
        used = self._rows * self._length
        there = sum(len(ids) for _, ids in self._waiting)
        while there <= used:
            self._waiting.append(next(self._reader))
            there += len(self._waiting[-1][1])
        block = np.concatenate([ids for _, ids in self._waiting])[: used + 1].astype(np.int64)
        while used >= len(self._waiting[0][1]):
            used -= len(self._waiting.popleft()[1])
        place, ids = self._waiting.popleft()
        self._waiting.appendleft((Place(place.document, place.token + used), ids[used:]))
        step = self._step or 0
        self._step = step + 1
        _keep(self._blocks, step, block)
        _keep(self._places, self._step, self._waiting[0][0])

    def _read_from(self, place: Place) -> Iterator[tuple[Place, npt.NDArray[Any]]]:
        """Tokens from a place on, without an end. Raises `UsageError` where there are none."""
        document, skipped, found = place.document, place.token, place.document > 0
        while True:
            for text in self._read(document):
                token = 0
                for ids in self._encode(_ended(text)) if text.strip() else ():
                    left = ids[max(skipped - token, 0) :]
                    if len(left):
                        yield Place(document, token + len(ids) - len(left)), left
                        found = True
                    token += len(ids)
                document, skipped = document + 1, 0
            if not found:
                raise UsageError("the documents to stream hold no text; name others")
            document, skipped, found = 0, 0, False


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _keep(by_step: dict[int, Any], step: int, value: Any) -> None:
    """Beside the few that were kept last."""
    by_step.pop(step, None)
    by_step[step] = value
    while len(by_step) > _KEPT:
        del by_step[next(iter(by_step))]
