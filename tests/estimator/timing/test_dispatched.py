"""Times of dispatched operators: the same kernels as the ledger's for the same work, and what has none."""

import pytest

from assay import api
from assay.cost import Cost
from assay.estimator import estimate
from assay.estimator.timing.dispatched import Call, Seen, kernels, operator_launches, untimed_operators
from assay.estimator.timing.gpu_step import MODULES, RECOMPUTED_SECONDS, WAIT
from assay.estimator.timing.launched_kernels import backward, forward
from assay.hardware.devices import absent_machine
from assay.hardware.kernel_seconds import (
    BACKWARD_LAUNCH_SECONDS,
    LAUNCH_SECONDS,
    UPDATE_LAUNCH_SECONDS,
    Kernel,
    speeds_of,
)
from assay.hardware.measured_kernels import FUSED, LISTED, PRODUCT

H200 = speeds_of("h200")
WIDE = {"float32": 4, "bfloat16": 2, "int64": 8}


def seen(*shape: int, dtype: str = "float32") -> Seen:
    nbytes = WIDE[dtype]
    for side in shape:
        nbytes *= side
    return Seen(shape, dtype, nbytes)


def call(name: str, read: list[Seen], written: list[Seen], part: str = "forward", tf32: bool = False) -> Call:
    return Call(name, tuple(read), tuple(written), part, tf32)


def ledger(*stack: str) -> Cost:
    run = api.configure("gpt2-124m", ["device=cuda", "model.n_layer=1", "model.vocab_size=512"], *stack)
    return estimate(run, absent_machine("h200")).cost


def of(cost: Cost, site: str, name: str) -> tuple[list[Kernel], list[Kernel]]:
    (one,) = (one for one in cost.tape if one.site.endswith(site) and one.name == name)
    return list(forward(one, cost)), list(backward(one, cost))


def test_a_layers_products_are_those_of_the_ledger() -> None:
    there, back = of(ledger(), "mlp.up", "aten.addmm")
    x, weight, out = seen(8192, 768), seen(768, 3072), seen(8192, 3072)
    assert list(kernels(call("addmm", [seen(3072), x, weight], [out]))) == there
    of_input = call("mm", [out, seen(3072, 768)], [x], "backward")
    of_weight = call("mm", [seen(3072, 8192), x], [seen(3072, 768)], "backward")
    found = [next(kernels(one)) for one in (of_input, of_weight)]
    # The ledger has both under the layer's shape; the table's speed depends on the sides little.
    for one, other in zip(found, back, strict=False):
        assert (one.kind, one.flops, one.nbytes, one.back) == (other.kind, other.flops, other.nbytes, other.back)
        assert H200.seconds(one) == pytest.approx(H200.seconds(other), rel=0.05)


def test_scores_norms_and_casts_are_those_of_the_ledger() -> None:
    plain, half = ledger(), ledger("bf16_mixed")
    scores = seen(96, 1024, 1024)
    (softmax,), (back,) = of(plain, "attention.core", "aten._softmax")
    assert next(kernels(call("_softmax", [scores], [scores]))) == softmax
    assert next(kernels(call("_softmax_backward_data", [scores, scores], [scores], "backward"))) == back
    x, row = seen(8, 1024, 768), seen(8, 1024, 1)
    (norm,), (back,) = of(plain, "mlp_norm", "aten.native_layer_norm")
    assert next(kernels(call("native_layer_norm", [x, seen(768), seen(768)], [x, row, row]))) == norm
    given = [x, x, row, row, seen(768), seen(768)]
    assert next(kernels(call("native_layer_norm_backward", given, [x, seen(768), seen(768)], "backward"))) == back
    cast = next(one for one in half.tape if one.name == "aten._to_copy" and one.inputs[0].endswith("mlp_norm:out"))
    assert next(kernels(call("_to_copy", [x], [seen(8, 1024, 768, dtype="bfloat16")]))) == next(forward(cast, half))


def test_attention_has_its_kernel_and_more_work_in_backward() -> None:
    q = seen(8, 12, 1024, 64, dtype="bfloat16")
    name = "_scaled_dot_product_flash_attention"
    there = next(kernels(call(name, [q, q, q], [q])))
    back = next(kernels(call(f"{name}_backward", [q, q, q, q, q], [q, q, q], "backward")))
    assert (there.kind, back.kind) == ("attention flash", "attention flash")
    assert back.flops == 2.5 * there.flops
    assert H200.seconds(back) > 2 * H200.seconds(there)


def test_products_of_float32_are_in_tf32_where_that_is_on() -> None:
    x, weight = seen(8192, 768), seen(768, 3072)
    wide, fast = (
        next(iter(operator_launches([call("mm", [x, weight], [seen(8192, 3072)], tf32=on)], H200)))
        for on in (False, True)
    )
    assert wide.device > 4 * fast.device


def test_lists_are_faster_than_an_operator_for_each_tensor() -> None:
    many = [seen(768, 3072)] * 48
    (listed,) = kernels(call("_foreach_mul_", many, many, "update"))
    (fused,) = kernels(call("_fused_adamw_", many, many, "update"))
    assert (listed.kind, fused.kind) == (LISTED, FUSED)
    assert listed.nbytes == 2 * 48 * 4 * 768 * 3072


def test_the_host_takes_as_long_as_in_the_ledgers_parts() -> None:
    x = seen(8, 768)
    parts = ("forward", "backward", "recompute", "update")
    found = [one.host for one in operator_launches([call("add", [x, x], [x], part) for part in parts], H200)]
    forwards = MODULES * LAUNCH_SECONDS
    assert found == [
        forwards,
        MODULES * BACKWARD_LAUNCH_SECONDS,
        forwards + RECOMPUTED_SECONDS,
        UPDATE_LAUNCH_SECONDS,
    ]


def test_a_read_makes_the_host_wait() -> None:
    read = call("_local_scalar_dense", [seen(1)], [])
    launched, wait = operator_launches([read], H200)
    assert (launched.device, wait) == (0.0, WAIT)


def test_operators_that_were_not_measured_are_named() -> None:
    x = seen(8, 3, 32, 32)
    calls = [call("convolution", [x, seen(8, 3, 3, 3)], [x]), call("add", [x, x], [x])]
    assert untimed_operators(calls) == ("convolution",)
    assert untimed_operators(calls[1:]) == ()


def test_another_operator_moves_the_bytes_of_its_tensors() -> None:
    x = seen(1024, 1024)
    (one,) = kernels(call("tanh", [x], [x]))
    assert (one.nbytes, one.flops, one.kind == PRODUCT) == (2 * 4 * 2**20, 0.0, False)
    assert list(kernels(call("empty_like", [x], [x]))) == []
