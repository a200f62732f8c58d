"""The forward pass as data: a tuple of operations, a writer that appends them, and a rewrite of one module's.

`cost.gpt_tape` writes the baseline's tape, the `predict` of optimizations rewrites it, and `cost.timeline` plays it
forwards and backwards to count live bytes. It holds shapes and names only, so rewriting a tape is list editing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from assay.cost.operation import Collectives, Flops, Gradient, Operation, Scratch
from assay.cost.tensor import BLANK, Tensor, alter

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
        tensor = alter(BLANK, name=name, shape=tuple(shape), dtype=dtype, batched=batched, view_of=of)
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
            alter(
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


class Repeatable:
    """Operations of a module, from which equal modules are made under other names."""

    def __init__(self, operations: Sequence[Operation], site: str) -> None:
        self._operations = operations
        names = {name: name for one in operations for name in _names(one)}
        self._outside = {name: name for name in names if not name.startswith(site)}
        self._inside = {name: name[len(site) :] for name in names if name.startswith(site)}
        """Ends of the names that begin with the module's site."""

    def names(self, site: str, given: Mapping[str, str]) -> dict[str, str]:
        """New names by old ones for the module at another site; some are given."""
        return {**self._outside, **{old: site + rest for old, rest in self._inside.items()}, **given}

    def under(self, names: Mapping[str, str]) -> list[Operation]:
        """The operations under new names, without communications."""
        tensor = partial(rename, names=names)
        return [_renamed(one, names.__getitem__, tensor) for one in self._operations]


def _names(one: Operation) -> Iterator[str]:
    yield from (one.site, *one.inputs, *one.saves, *one.holds)
    for tensor in one.own.values():
        yield tensor.name
        if tensor.view_of is not None:
            yield tensor.view_of


def _renamed(one: Operation, name: Callable[[str], str], tensor: Callable[[Tensor], Tensor]) -> Operation:
    return alter(
        one,
        site=name(one.site),
        inputs=tuple(map(name, one.inputs)),
        outputs=tuple(map(tensor, one.outputs)),
        saves=tuple(map(name, one.saves)),
        extras=tuple(map(tensor, one.extras)),
        holds=tuple(map(name, one.holds)),
        scratch=one.scratch.changed(tensor),
    )


def rename(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    """The tensor under its new name."""
    if tensor.view_of is None:
        return alter(tensor, name=names[tensor.name])
    return alter(tensor, name=names[tensor.name], view_of=names[tensor.view_of])


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
