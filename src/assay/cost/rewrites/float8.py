"""Linear layers whose products are in float8, as the ledger sees them (read off `torchao/float8`).

A layer saves its narrow input and its weight, and rounds both anew for each product. Rounding makes a wide copy, that
copy scaled, and one byte a number. Rounded tensors live until the layer's forward or backward has finished, and a
kernel that needs a transposed matrix gets a copy. That backward is one function with many instants. On the tape it is a
row of operations that do nothing in forward, each with the temporaries of one instant. The last runs first.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.cost.layers import Writer
from assay.cost.operation import Gradient, Operation, Scratch, Tensor
from assay.cost.step_cost import Cost

FORMAT = "float8_e4m3fn"
"""dtype of rounded inputs and weights. Gradients have another of as many bytes."""
_CAST = "aten._to_copy"
_PRODUCTS = ("aten.mm", "aten.addmm")
_BACKWARD = "matmul_with_hp_or_float8_argsBackward"

Held = tuple[Tensor, ...]


def float8(cost: Cost, sites: Sequence[str]) -> Cost:
    """The ledger of a step under autocast in which the linear layers of these modules multiply in float8."""
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

    If the device `converts`, it multiplies float32 copies of the rounded tensors.
    """

    def __init__(self, linear: Operation, values: dict[str, Tensor], given: Held, *, converts: bool) -> None:
        self.linear, self.tape, self.converts = linear, Writer(linear.site, values), converts
        (self.x, self.weight, *self.bias), (self.out,) = given, linear.outputs

    def operations(self) -> list[Operation]:
        """The operations of the layer, in the order of forward."""
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
        # The weight's gradient is widened before backward frees the input.
        tape.write("aten.t", "movement", (weight,), (turned,), (Gradient.INPLACE,), saves=(x,), backward="TBackward")
        for one in (x, weight):
            scratch = _widened(one)
            tape.write(_CAST, "movement", (one,), (self._rounded(one),), (Gradient.NONE,), scratch=Scratch(scratch))
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
                scratch=Scratch(self._converted(x, weight, product)),
                backward=_BACKWARD,
            )
        )
        return product

    def _backward(self, product: Tensor) -> Tensor:
        """Write the instants of backward, the last one first; returns the product's last view."""
        tape, x, weight = self.tape, self.x, self.weight
        g, w, i = map(self._rounded, (product, weight, x))
        # The second product computes the weight's gradient, and needs both of its factors transposed.
        scratch = (g, w, g, i, g, i, *self._converted(product, x, weight))
        written = tape.operations[-1]
        tape.operations[-1] = replace(written, scratch=written.scratch.and_also(backward=scratch))
        last = self._instant(product, g, w, g, i, *_widened(x))
        last = self._instant(last, g, w, g, *_widened(product))
        # The first product computes the input's gradient, and needs the weight transposed.
        last = self._instant(last, g, w, w, *self._converted(product, weight, x), gives=True)
        last = self._instant(last, g, w, *_widened(weight))
        return self._instant(last, g, *_widened(product))

    def _instant(self, product: Tensor, *held: Tensor, gives: bool = False) -> Tensor:
        """Write one instant of backward and its temporaries `held`; with `gives` it computes the input's gradient."""
        after = self.tape.made("product", product.shape, product.dtype, of=product.name)
        inputs = (product, self.x) if gives else (product,)
        gradients = (Gradient.ALIAS, Gradient.FRESH)[: len(inputs)]
        self.tape.write(
            "aten.view",
            "movement",
            inputs,
            (after,),
            gradients,
            # A Python function saves its tensors after it has run, so a recomputation multiplies before it stops.
            saves=(self.x,),
            backward=_BACKWARD,
            scratch=Scratch(backward=held),
        )
        return after

    def _add(self, product: Tensor) -> None:
        (bias,) = self.bias
        narrow = self.tape.made("bias", bias.shape, self.x.dtype, batched=False)
        self.tape.write(_CAST, "movement", (bias,), (narrow,), (Gradient.INPLACE,), backward="ToCopyBackward")
        gradients = (Gradient.ALIAS, Gradient.VIEWED)
        self.tape.write("aten.add", "elementwise", (product, narrow), (self.out,), gradients, backward="AddBackward")

    def _rounded(self, one: Tensor) -> Tensor:
        """The tensor rounded to one byte a number."""
        name = f"{self.linear.site}:rounded {one.name}"
        return replace(one, name=name, dtype=FORMAT, view_of=None, held=False)

    def _converted(self, left: Tensor, right: Tensor, out: Tensor) -> Held:
        """Temporaries at the peak of a product, if the device multiplies float32 copies of the rounded tensors."""
        if not self.converts:
            return ()
        a, b, wide = map(_wide, (left, right, out))
        # The right factor is transposed back, each copy scaled into another, and the result narrowed into a new tensor.
        most = max((a, a), (a, b, b), (a, b, wide, wide.cast(self.out.dtype)), key=_nbytes)
        return (self._rounded(right), *most)


def _widened(one: Tensor) -> Held:
    """Quantization temporaries: the scaled float32 tensor and its clamped copy."""
    return _wide(one), _wide(one)


def _wide(one: Tensor) -> Tensor:
    return replace(one, name=f"wide {one.name}", dtype="float32", view_of=None)


def _nbytes(held: Held) -> int:
    return sum(one.nbytes for one in held)
