"""Linear layers whose products are in float8, as the ledger sees them (read off `torchao/float8`).

A layer keeps its narrow input and its weight itself, and rounds both anew whenever it multiplies: to a wide copy, to
that copy scaled, and to one byte a number. What is rounded lives until the layer's forward or backward is through, and
a kernel that wants a matrix turned gets a copy. That backward is one function of many instants; on the tape it is a row
of operations that do nothing forwards, each with what one instant holds beside its results. The last runs first.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.cost.step import Cost
from assay.cost.tape import Gradient, Operation, Writer
from assay.cost.tensors import Tensor

FORMAT = "float8_e4m3fn"
"""Of inputs and weights. Gradients have another, of as many bytes."""
_CAST = "aten._to_copy"
_PRODUCTS = ("aten.mm", "aten.addmm")
_BACKWARD = "matmul_with_hp_or_float8_argsBackward"

Held = tuple[Tensor, ...]


def float8(cost: Cost, sites: Sequence[str]) -> Cost:
    """The ledger of a step under autocast when the linear layers of these modules multiply in float8."""
    values, converts = cost.values, cost.kernels.float8_in_float32
    inside = [one for one in cost.tape if one.within(*sites)]
    copied = {one.outputs[0].name: one.inputs[0] for one in inside if one.name == _CAST}
    copies = {copy for copy, original in copied.items() if original in cost.parameters}
    tape: list[Operation] = []
    for operation in cost.tape:
        if operation.name in _PRODUCTS and operation.within(*sites):
            given = (values[operation.inputs[0]], *(cost.parameters[copied[copy]] for copy in operation.inputs[1:]))
            tape.extend(_Layer(operation, values, given, converts=converts).operations())
        elif copies.isdisjoint(one.name for one in operation.outputs):
            tape.append(operation)
    return replace(cost, tape=tuple(tape))


class _Layer:
    """One linear layer: its input and result are narrow, its weight and bias in float32.

    Where the device `converts`, a product is one of copies in float32.
    """

    def __init__(self, linear: Operation, values: dict[str, Tensor], given: Held, *, converts: bool) -> None:
        self.linear, self.tape, self.converts = linear, Writer(linear.site, values), converts
        (self.x, self.weight, *self.bias), (self.out,) = given, linear.outputs

    def operations(self) -> list[Operation]:
        """In the order of forward."""
        product = self._multiply()
        last = self._backward(product)
        if self.bias:
            self._add(last)
        else:
            self.tape.operations[-1] = replace(
                self.tape.operations[-1], outputs=(replace(self.out, view_of=product.name),)
            )
        return self.tape.operations

    def _multiply(self) -> Tensor:
        tape, x, weight = self.tape, self.x, self.weight
        turned = tape.made("turned", weight.shape, x.dtype, batched=False, of=weight.name)
        # The weight's gradient is widened before backward lets go of the input.
        tape.write("aten.t", "movement", (weight,), (turned,), (Gradient.INPLACE,), saves=(x,), backward="TBackward")
        for one in (x, weight):
            scratch = _widened(one)
            tape.write(_CAST, "movement", (one,), (self._rounded(one),), (Gradient.NONE,), forward_scratch=scratch)
        product = tape.made("product", self.out.shape, self.out.dtype)
        tape.operations.append(
            replace(
                self.linear,
                name="aten._scaled_mm",
                inputs=(turned.name, self._rounded(x).name, self._rounded(weight).name),
                outputs=(product,),
                gradients=(Gradient.VIEWED, Gradient.NONE, Gradient.NONE),
                saves=(),
                products=FORMAT,
                forward_scratch=self._converted(x, weight, product),
                backward=_BACKWARD,
            )
        )
        return product

    def _backward(self, product: Tensor) -> Tensor:
        """Write the instants, from the end of backward to its begin; returns the product's last name."""
        tape, x, weight = self.tape, self.x, self.weight
        g, w, i = map(self._rounded, (product, weight, x))
        # The second product gives the weight's gradient, and wants both of its factors turned.
        scratch = (g, w, g, i, g, i, *self._converted(product, x, weight))
        tape.operations[-1] = replace(tape.operations[-1], backward_scratch=scratch)
        last = self._instant(product, g, w, g, i, *_widened(x))
        last = self._instant(last, g, w, g, *_widened(product))
        # The first gives the input's, and wants the weight turned.
        last = self._instant(last, g, w, w, *self._converted(product, weight, x), gives=True)
        last = self._instant(last, g, w, *_widened(weight))
        return self._instant(last, g, *_widened(product))

    def _instant(self, product: Tensor, *held: Tensor, gives: bool = False) -> Tensor:
        """What backward holds at one time; at one of them it `gives` the gradient of the input."""
        after = self.tape.made("product", product.shape, product.dtype, of=product.name)
        inputs = (product, self.x) if gives else (product,)
        gradients = (Gradient.ALIAS, Gradient.FRESH)[: len(inputs)]
        self.tape.write(
            "aten.view",
            "movement",
            inputs,
            (after,),
            gradients,
            # What a function of Python's keeps it keeps when it has run: a recomputation multiplies before it stops.
            saves=(self.x,),
            backward=_BACKWARD,
            backward_scratch=held,
        )
        return after

    def _add(self, product: Tensor) -> None:
        (bias,) = self.bias
        narrow = self.tape.made("bias", bias.shape, self.x.dtype, batched=False)
        self.tape.write(_CAST, "movement", (bias,), (narrow,), (Gradient.INPLACE,), backward="ToCopyBackward")
        gradients = (Gradient.ALIAS, Gradient.VIEWED)
        self.tape.write("aten.add", "elementwise", (product, narrow), (self.out,), gradients, backward="AddBackward")

    def _rounded(self, one: Tensor) -> Tensor:
        """One byte a number."""
        name = f"{self.linear.site}:rounded {one.name}"
        return replace(one, name=name, dtype=FORMAT, view_of=None, held=False)

    def _converted(self, left: Tensor, right: Tensor, out: Tensor) -> Held:
        """The most that a product of two rounded tensors makes on the way, where it is one of copies in float32."""
        if not self.converts:
            return ()
        a, b, wide = map(_wide, (left, right, out))
        # The right factor is turned back, each copy scaled into another, and the result narrowed beside itself.
        most = max((a, a), (a, b, b), (a, b, wide, wide.cast(self.out.dtype)), key=_nbytes)
        return (self._rounded(right), *most)


def _widened(one: Tensor) -> Held:
    """What rounding makes on its way: the tensor in float32 and scaled, and the same within the format's range."""
    return _wide(one), _wide(one)


def _wide(one: Tensor) -> Tensor:
    return replace(one, name=f"wide {one.name}", dtype="float32", view_of=None)


def _nbytes(held: Held) -> int:
    return sum(one.nbytes for one in held)
