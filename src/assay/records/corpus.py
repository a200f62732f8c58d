"""Remarks on a corpus: what of it is not read, or not read as its owner may expect, with the reason and the count."""

from typing import Literal

from assay.records.base import Record
from assay.units import format_bytes, format_count


class Remark(Record):
    """One reason, and how often it applies."""

    kind: Literal["left out", "read as it is", "unknown"]
    reason: str
    """The rest of a sentence on the parts, with a remedy if there is one."""
    what: str
    """Noun for one part, such as `file`."""
    count: int
    size_bytes: int | None = None
    """Bytes of all parts on disk; None if they are no files."""
    first: str
    """Place of the first part."""

    def __str__(self) -> str:
        parts = f"{format_count(self.count)} {self.what}{'' if self.count == 1 else 's'}"
        size = "" if self.size_bytes is None else f" of {format_bytes(self.size_bytes)}"
        return f"{self.kind}: {parts}{size}, {self.reason}; {'' if self.count == 1 else 'the first is '}{self.first}"
