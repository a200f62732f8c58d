"""A tally of what is not read of a corpus, or is read in a way that should be known.

Every byte of a corpus is read, or is here with its reason. Parts with one reason are one remark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.records.corpus import Remark


@dataclass(frozen=True)
class Reason:
    """A reason, and what happens to the parts to which it applies."""

    text: str
    kind: Literal["left out", "read as it is"] = "left out"
    what: str = "file"


HIDDEN = Reason("hidden", what="name")
NOT_REGULAR = Reason("a link without its file, or no file", what="name")
METADATA = Reason("metadata of a data set and no text")
OTHER_SPLIT = Reason("of a split that is not read")
NULL = Reason("null and no text", what="record")
CARRIAGE_RETURNS = Reason(
    "with carriage returns (\\r), which become tokens; nanoGPT reads \\r\\n and \\r as \\n", "read as it is"
)
MARKED = Reason("with a byte order mark, which becomes tokens; data.encoding=utf-8-sig leaves it out", "read as it is")


class Tally:
    """Counts parts of a corpus by reason, in the order in which they were first met."""

    def __init__(self) -> None:
        self._remarks: dict[Reason, Remark] = {}

    def add(self, reason: Reason, place: object, size_bytes: int | None = None, count: int = 1) -> None:
        """Count parts of a reason. `place` names the first of them; `size_bytes` is the size of all."""
        before = self._remarks.get(reason)
        if before is None:
            self._remarks[reason] = Remark(
                kind=reason.kind,
                reason=reason.text,
                what=reason.what,
                count=count,
                size_bytes=size_bytes,
                first=str(place),
            )
            return
        size = None if size_bytes is None else size_bytes + (before.size_bytes or 0)
        self._remarks[reason] = before.model_copy(update={"count": before.count + count, "size_bytes": size})

    def add_files(self, reason: Reason, paths: Iterable[Path]) -> None:
        """Count whole files of a reason."""
        for path in paths:
            self.add(reason, path, path.stat().st_size)

    @property
    def parts(self) -> int:
        """Number of all parts that were counted."""
        return sum(remark.count for remark in self._remarks.values())

    def remarks(self) -> tuple[Remark, ...]:
        """Return a remark per reason."""
        return tuple(self._remarks.values())
