"""The surroundings of a run that decide its figures."""

from collections.abc import Mapping

from pydantic import Field

from assay.records.base import Record


class Environment(Record):
    """Surroundings that decide a figure. Results from different environments are never compared without a warning."""

    assay: str
    torch: str
    python: str
    device: str
    processor: str
    cores: int
    threads: int
    """Threads for CPU kernels, summed over ranks."""
    memory_bytes: int
    accelerator: str | None = None
    driver: str | None = None
    corpus_digest: str | None = None
    packages: Mapping[str, str] = Field(default_factory=dict)
    pinned: tuple[int, ...] = ()
    """Numbers of the cores to which the run was pinned; empty if it was not."""
    instruction_set: str | None = None
    """Newest instruction set that the CPU's kernels use; None in records older than this field."""

    def differs(self, other: "Environment") -> list[str]:
        """Names of the fields in which two environments differ."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]
