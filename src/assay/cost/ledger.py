"""Live bytes while a step is played, and the highest moment of each of its parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Moment:
    """A point of the step: what runs, where, and the bytes alive."""

    phase: str
    """forward, recompute, backward or update."""
    operation: str
    site: str
    nbytes: int

    @property
    def label(self) -> str:
        """Phase and operation: what an instrument can name, too."""
        return f"{self.phase}: {self.operation}"

    def __str__(self) -> str:
        return self.label + (f" ({self.site})" if self.site else "")


@dataclass(eq=False)
class Storage:
    """Bytes with a count of those who hold them."""

    nbytes: int
    holders: int = 1
    viewed: bool = False
    """Whether it is held under another shape than it was made with."""

    def may_become(self, nbytes: int) -> bool:
        """Whether a compiled loop may write over it: as large as that, and nobody else has it."""
        return self.holders == 1 and self.nbytes == nbytes


@dataclass
class Ledger:
    """What is alive, what was asked for, and when it was most."""

    live: int
    allocations: int = 0
    allocated_bytes: int = 0
    highest: dict[tuple[str, str], Moment] = field(default_factory=dict)

    def take(self, nbytes: int) -> Storage:
        """Allocate, with one holder."""
        self.live += nbytes
        self.allocations += 1
        self.allocated_bytes += nbytes
        return Storage(nbytes)

    def drop(self, storage: Storage) -> None:
        """Take one holder away; the last one frees."""
        storage.holders -= 1
        if storage.holders == 0:
            self.live -= storage.nbytes

    @contextmanager
    def held(self, nbytes: int) -> Iterator[None]:
        """Hold so many bytes inside, as recomputation holds the current random state while an earlier one is used."""
        storage = self.take(nbytes) if nbytes else None
        yield
        if storage is not None:
            self.drop(storage)

    def add(self, earlier: Storage, later: Storage, site: str, *, in_place: bool) -> Storage:
        """Add two gradients: into the earlier one if nothing else holds it and it is no view, else into a new one."""
        total = earlier
        if earlier.holders > 1 or earlier.viewed or not in_place:
            total = self.take(earlier.nbytes)
            self.mark("backward", "gradient sum", site)
            self.drop(earlier)
        self.drop(later)
        return total

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Remember this moment if it is the highest of its part of the step."""
        part = (phase, "" if phase == "update" else _module(site))
        if part not in self.highest or self.live > self.highest[part].nbytes:
            self.highest[part] = Moment(phase, operation, site, self.live)

    def repeat(self, since: tuple[int, int], times: int) -> None:
        """Count the requests made since `since` so many times more."""
        self.allocations += (self.allocations - since[0]) * times
        self.allocated_bytes += (self.allocated_bytes - since[1]) * times


def _module(site: str) -> str:
    """`blocks.3.attention` → `blocks.3`; `head.norm` → `head`."""
    parts = site.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else parts[0]
