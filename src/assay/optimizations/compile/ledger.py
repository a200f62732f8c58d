"""A step with compiled modules: products stay library calls, everything else is in fused loops.

Read off the code that TorchInductor generates for our modules, region by region (the embedding, each block, the head):

- A result is written to memory only if a product reads it, if its region ends, or if streams meet. A result that
  follows from a single stream is computed where it is read.
- Products save the same tensors as in eager mode. A loop saves tensors from which its backward can start: results of
  products, statistics of rows, and noise. Tables are computed inside, and each reader saves its own mask.
- A loop overwrites a tensor of which it is the last reader, if that is as large: arguments in forward, gradients and
  its saved tensors in backward. The gradient of a weight is computed first, and frees the other factor.
- A region accumulates the gradients of its weights when all of its backward has finished.

The tests compare the bytes with measured ones. It makes no difference to them which of two equally large values is
saved.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

from assay.cost.operation import Gradient, Operation, Scratch, Tensor
from assay.cost.step_cost import Cost

_SOFTMAXES = {"aten._softmax", "aten._log_softmax", "aten._safe_softmax"}
"""Operations recomputed from their input, the maximum of each row, and the row's sum."""


def fuse_modules(cost: Cost, sites: Sequence[str]) -> Cost:
    """The ledger with each of these modules compiled as one region, or as several around opaque operations."""
    opaque = [one for one in cost.tape if one.opaque]
    sites = tuple(chain.from_iterable(_regions(cost, site, opaque) for site in sites))

    def region(operation: Operation) -> str:
        return next((site for site in sites if operation.within(site)), "")

    tape: list[Operation] = []
    values, reads = cost.values, _reads(cost.tape)
    for site, operations in groupby(cost.tape, region):
        run = tuple(operations)
        tape.extend(_Region(cost, values, reads, run).compiled() if site else run)
    # A checkpointed region saves the generator's state before each draw.
    draws = sum(operation.within(*cost.backward.recomputed[:1]) and _draws(operation) for operation in cost.tape)
    backward = replace(cost.backward, accumulated_together=sites, noise_bytes=cost.backward.noise_bytes * draws)
    return replace(cost, tape=tuple(tape), backward=backward).with_tables_read()


def _regions(cost: Cost, site: str, opaque: Sequence[Operation]) -> Iterable[str]:
    """The module itself, or the modules that remain of it without opaque operations."""
    if not any(one.within(site) for one in opaque):
        return (site,)
    return dict.fromkeys(one.site for one in cost.tape if one.within(site) and not one.opaque)


def _reads(operations: Iterable[Operation]) -> Counter[str]:
    """Number of times that each value is read or saved."""
    return Counter(chain.from_iterable((*one.inputs, *one.saves) for one in operations))


class _Region:
    """One compiled module's operations, and which of their results must be written to memory."""

    def __init__(
        self, cost: Cost, values: dict[str, Tensor], reads: Counter[str], operations: tuple[Operation, ...]
    ) -> None:
        self.operations, self.values, self.parameters = operations, values, cost.parameters
        self.tables = {table.name for table in cost.tables}
        self.streamless = self.parameters.keys() | self.tables | {one.name for one in cost.batch.tensors}
        # Scratch may have the name of the tensor that it copies, and nobody reads it.
        self.maker = {made.name: one for one in operations for made in (*one.outputs, *one.extras)}
        inside = _reads(operations)
        elsewhere = {name for name in (*inside, *self.maker) if reads[name] > inside[name]}
        products = _reads(one for one in operations if one.kind == "contraction")
        self.written = {self._base(name) for name in elsewhere | products.keys()}
        self.kept: set[str] = set()
        """Values that earlier operations save for backward."""
        self.computed: dict[str, str] = {}
        """Results that are not written, with the storage from which their readers compute them."""

    def compiled(self) -> Iterator[Operation]:
        """The operations as compiled code runs them."""
        after = []
        for one in self.operations:
            after.append(self._product(one) if one.kind == "contraction" else self._loop(one))
            self.kept.update(after[-1].saves)
        kept: set[str] = set()
        for operation in after:
            # A tensor saved by consecutive loops belongs to the first, whose backward runs last and overwrites it.
            if operation.kind == "contraction":
                kept.clear()
                yield operation
            else:
                yield replace(operation, saves=tuple(name for name in operation.saves if name not in kept))
                kept.update(operation.saves)

    def _product(self, operation: Operation) -> Operation:
        return replace(operation, holds=self._held(operation), compiled=self._weight_first(operation))

    def _loop(self, operation: Operation) -> Operation:
        read = dict(zip(operation.inputs, operation.gradients, strict=True))
        streams = {self._storage(name) for name in self._streams(operation)}
        outputs = tuple(self._written(one, streams) for one in operation.outputs)
        own = {one.name: _let_through(operation, one) for one in operation.extras if not _follows(operation, one)}
        saves = dict.fromkeys(chain.from_iterable(self._sources(operation, name, own) for name in operation.saves))
        saves |= dict.fromkeys(_added(own, one) for one in self._of_targets(operation))
        return replace(
            operation,
            inputs=tuple(name for name in read if name not in self.tables),
            gradients=tuple(self._gradient(operation, *one) for one in read.items() if one[0] not in self.tables),
            outputs=outputs,
            extras=tuple(own.values()),
            saves=tuple(saves),
            holds=(*self._held(operation), *(name for name in saves if name not in own)),
            scratch=Scratch(),
            number_bytes=0,
            compiled=True,
        )

    def _of_targets(self, operation: Operation) -> Iterator[Tensor]:
        """Yield what a loss saves of each row where a cap bends the logits: whether it counts, and a number."""
        if operation.name == "aten.nll_loss_forward" and any(one.name == "aten.tanh" for one in self.operations):
            rows = self.values[operation.inputs[0]].shape[:1]
            yield Tensor(f"{operation.site}:counted", rows, "bool")
            yield Tensor(f"{operation.site}:picked", rows)

    def _held(self, operation: Operation) -> tuple[str, ...]:
        """Values of `holds` from outside the region: compiled code has no frames of its own, but its callers have."""
        return tuple(name for name in operation.holds if name not in self.maker)

    def _base(self, name: str) -> str:
        """Name of the storage behind a value."""
        while (below := self.values[name].view_of) is not None:
            name = below
        return name

    def _storage(self, name: str) -> str:
        """Name of the storage behind a value, or of the storage from which it is computed."""
        return self.computed.get(self._base(name), self._base(name))

    def _streams(self, operation: Operation) -> Iterator[str]:
        return (name for name in operation.inputs if name not in self.streamless)

    def _written(self, output: Tensor, streams: set[str]) -> Tensor:
        """A result, which becomes a view of its stream if it has only one and only loops read it."""
        if output.view_of is not None or output.name in self.written or len(streams) != 1 or not output.shape:
            return output
        (stream,) = streams
        self.computed[output.name] = stream
        return replace(output, view_of=stream)

    def _gradient(self, operation: Operation, name: str, how: Gradient) -> Gradient:
        """Kind of a gradient in compiled code: a fresh one overwrites, except that of a norm with weights.

        Other loops still sum the weights' gradients over the incoming gradient of such a norm.
        """
        if how is not Gradient.NONE and name in self.computed:
            return Gradient.INSIDE
        weighted = operation.kind == "normalization" and Gradient.INPLACE in operation.gradients
        fresh = how in (Gradient.FRESH, Gradient.CONVERTED)
        return Gradient.OVERWRITING if fresh and not weighted else how

    def _sources(self, reader: Operation, name: str, own: dict[str, Tensor]) -> Iterator[str]:
        """Names of the tensors saved in place of a value; `own` is extended by those that the reader makes for it."""
        base = self._base(name)
        maker = self.maker.get(base)
        if name in self.tables:
            if self.values[name].dtype == "bool":
                yield _added(own, replace(self.values[name], name=f"{reader.site}:{name}"))
        elif maker is None or maker.kind == "contraction" or base in self.written or name in own:
            yield name
        elif base in self.computed or any(extra.name == name for extra in maker.extras):
            for stream in self._streams(maker):
                yield from self._sources(reader, stream, own)
            if maker.name in _SOFTMAXES:
                (whole,) = maker.outputs
                for label in ("largest", "sum"):
                    row = replace(whole, name=f"{maker.site}:{label}", shape=(*whole.shape[:-1], 1), view_of=None)
                    yield _added(own, row) if reader is maker else row.name
        elif maker.name == "aten.add":
            yield from self._smaller(reader, name, maker, own)
        else:
            yield name

    def _smaller(self, reader: Operation, name: str, maker: Operation, own: dict[str, Tensor]) -> Iterator[str]:
        """Where streams meet: the sum itself, or the tensors from which it is recomputed if these are fewer bytes."""
        made = dict(own)
        sources = list(chain.from_iterable(self._sources(reader, one, made) for one in self._streams(maker)))
        added = sum((made | self.values)[one].nbytes for one in sources if one not in self.kept)
        if added < self.values[name].nbytes:
            own.update(made)
            yield from sources
        else:
            yield name

    def _weight_first(self, operation: Operation) -> bool:
        """True if backward computes the weight's gradient first.

        Measured: a product with a bias whose result is only added keeps autograd's order.
        """
        inputs = operation.inputs
        if len(inputs) not in (2, 3) or self.values[inputs[1]].batched:
            return False
        (out,) = operation.outputs
        readers = [one for one in self.operations if out.name in one.inputs]
        straight = all(one.name == "aten.add" for one in readers)
        return len(inputs) == 2 or inputs[1] not in self.parameters or not straight


def _follows(operation: Operation, extra: Tensor) -> bool:
    """True if backward recomputes it. Norm statistics are saved, because they are smaller than the output."""
    return operation.kind == "normalization" and extra.elements >= operation.outputs[0].elements


def _draws(operation: Operation) -> bool:
    return operation.kind == "elementwise" and bool(operation.extras)


def _let_through(operation: Operation, extra: Tensor) -> Tensor:
    """The extra as compiled code saves it: dropout's noise becomes a boolean mask."""
    return extra if operation.kind == "normalization" else replace(extra, dtype="bool")


def _added(own: dict[str, Tensor], tensor: Tensor) -> str:
    own[tensor.name] = tensor
    return tensor.name
