"""The forward pass as data: a tuple of operations, a writer that appends them, and a rewrite of one module's.

`cost.gpt` writes the baseline's tape, the `predict` of optimizations rewrites it, and `cost.timeline` plays it forwards
and backwards to count live bytes. It holds shapes and names only, so rewriting a tape is list editing.
"""

from collections.abc import Callable, Mapping, Sequence

from assay.cost.operation import Collectives, Flops, Gradient, Operation, Scratch
from assay.cost.tensors import BLANK, Tensor, altered

Tape = tuple[Operation, ...]

_BLANK = Operation(name="", site="", kind="", inputs=(), outputs=(), gradients=())
"""An operation that is altered to each new one, because that takes half the time of making one."""


class Writer:
    """Appends operations to a tape and gives each result a unique name."""

    def __init__(self, site: str, values: dict[str, Tensor]) -> None:
        self.site = site
        self.values = values
        """Every tensor that may be read, by name: parameters, the batch, and the results so far."""
        self.operations: list[Operation] = []

    def at(self, site: str) -> "Writer":
        """A writer for a module inside this one, which appends to the same tape."""
        inner = Writer(f"{self.site}.{site}" if self.site else site, self.values)
        inner.operations = self.operations
        return inner

    def made(
        self, label: str, shape: Sequence[int], dtype: str, *, batched: bool = True, of: str | None = None
    ) -> Tensor:
        """Make a new tensor named after the site; `of` makes it a view."""
        name = f"{self.site}:{label}"
        while name in self.values:
            name += "'"
        tensor = altered(BLANK, name=name, shape=tuple(shape), dtype=dtype, batched=batched, view_of=of)
        self.values[name] = tensor
        return tensor

    def write(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        gradients: Sequence[Gradient],
        *,
        saves: Sequence[Tensor] = (),
        extras: Sequence[Tensor] = (),
        holds: Sequence[Tensor] = (),
        flops: Flops = Flops(),
        backward: str = "",
        scratch: Scratch = Scratch(),
        autocast: str = "",
        counts: bool = False,
        collectives: Collectives = Collectives(),
    ) -> None:
        """Append an operation."""
        self.operations.append(
            altered(
                _BLANK,
                name=name,
                site=self.site,
                kind=kind,
                inputs=tuple([tensor.name for tensor in inputs]),
                outputs=tuple(outputs),
                gradients=tuple(gradients),
                saves=tuple([tensor.name for tensor in saves]),
                extras=tuple(extras),
                holds=tuple([tensor.name for tensor in holds]),
                flops=flops,
                backward=backward,
                scratch=scratch,
                autocast=autocast,
                counts=counts,
                collectives=collectives,
            )
        )


class Renamed(dict[str, str]):
    """Names of one module under those of another with equal operations; each is computed when it is first read."""

    def __init__(self, old: str, new: str, given: Mapping[str, str]) -> None:
        """Rename what is at the site `old` to the site `new`, and the names in `given` as it says."""
        super().__init__(given)
        self._old, self._new = old, new

    def __missing__(self, name: str) -> str:
        found = self._new + name[len(self._old) :] if name.startswith(self._old) else name
        self[name] = found
        return found

    def tensor(self, one: Tensor) -> Tensor:
        """The tensor under its new name."""
        if one.view_of is None:
            return altered(one, name=self[one.name])
        return altered(one, name=self[one.name], view_of=self[one.view_of])

    def operation(self, one: Operation) -> Operation:
        """The operation at its new site, without communications."""
        return altered(
            one,
            site=self[one.site],
            inputs=tuple([self[name] for name in one.inputs]),
            outputs=tuple([self.tensor(each) for each in one.outputs]),
            saves=tuple([self[name] for name in one.saves]),
            extras=tuple([self.tensor(each) for each in one.extras]) if one.extras else (),
            holds=tuple([self[name] for name in one.holds]) if one.holds else (),
            scratch=one.scratch.changed(self.tensor),
        )


def replace_site(tape: Tape, inside: Callable[[str], bool], rewrite: Callable[[Tape], Tape]) -> Tape:
    """Replace each maximal run of operations at one site that satisfies `inside` by `rewrite` of it."""
    result: list[Operation] = []
    run: list[Operation] = []
    for operation in tape:
        if inside(operation.site) and (not run or run[-1].site == operation.site):
            run.append(operation)
            continue
        if run:
            result.extend(rewrite(tuple(run)))
            run = []
        if inside(operation.site):
            run.append(operation)
        else:
            result.append(operation)
    if run:
        result.extend(rewrite(tuple(run)))
    return tuple(result)
