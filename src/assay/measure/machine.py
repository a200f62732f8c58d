"""Measure what torch reaches on this machine: ``python -m assay.measure.machine [cpu|cuda]`` prints one line of JSON.

The matmul rate of a dtype is that of the fastest of repeated large square products, 2·n³ FLOPs each: a roof that a
training step may be held against, not an average. n doubles until a product fills a share of the time allowed, so that
a dtype without hardware for it, which may be a hundred times slower, is measured on a smaller product. The right factor
is tried as it lies and transposed, as a linear layer has it: converted dtypes can differ sevenfold between the two. The
bandwidth is that of a copy too large for any cache, counting bytes read and bytes written. The time to launch an
operation is that of one on a few numbers, in a chain of many. What joins two processes on a CPU is measured with it.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import torch

from assay.hardware import Rates
from assay.measure.link import measure_link

DTYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn")
_SMALLEST = 256
_LARGEST = {"cpu": 4096, "cuda": 16384}
_COPY_BYTES = {"cpu": 2**28, "cuda": 2**30}
_PRODUCTS = 2
"""At least so many products of the final size should fit the time allowed."""
_CHAIN = 256
"""Small operations, each on the result of the last."""


def measure_rates(device: str, seconds: float = 2.0) -> Rates:
    """Measure `cpu` or `cuda` within about `seconds`. Raises `ValueError` where torch has no such device."""
    if device not in _LARGEST or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"this torch has no device {device!r}")
    torch.set_float32_matmul_precision("highest")
    share = seconds / (len(DTYPES) + 2)
    forward, backward = _launch_seconds(device, share)
    rates = {dtype: _matmul_flops(device, getattr(torch, dtype), share) for dtype in DTYPES}
    return Rates(
        device=device,
        matmul_flops={dtype: rate for dtype, rate in rates.items() if rate is not None},
        bandwidth_bytes=_bandwidth(device, share),
        launch_seconds=forward,
        backward_launch_seconds=backward,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
    )


def _matmul_flops(device: str, dtype: torch.dtype, seconds: float) -> float | None:
    """FLOP/s; None where the device has no such product."""
    size, fastest = _SMALLEST, 0.0
    while True:
        try:
            left, right = (torch.ones(size, size, device=device).to(dtype) for _ in range(2))
            # the first of a size also prepares it
            trials = [(min(_timed(device, one) for _ in range(3)), one) for one in _products(left, right)]
            once, multiply = min(trials, key=lambda trial: trial[0])
        except RuntimeError:
            return fastest or None
        fastest = max(fastest, 2 * size**3 / once)
        # The next size takes eight times as long.
        if 8 * once * _PRODUCTS > seconds or size >= _LARGEST[device]:
            return max(fastest, 2 * size**3 / _shortest(device, multiply, seconds))
        size *= 2


def _products(left: torch.Tensor, right: torch.Tensor) -> list[Callable[[], object]]:
    if left.dtype.itemsize == 1:  # its kernel takes scales, and the right factor transposed only
        scale = torch.ones((), device=left.device)
        return [lambda: torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16)]
    out = torch.empty_like(left)
    return [lambda: torch.mm(left, right, out=out), lambda: torch.mm(left, right.t(), out=out)]


def _launch_seconds(device: str, seconds: float) -> tuple[float, float]:
    """Of an operation and of its backward, by the host's clock, which waits for the device at the end of a chain."""
    factor = torch.ones(8, device=device, requires_grad=True)
    forward, backward, end = float("inf"), float("inf"), time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        product = factor
        for _ in range(_CHAIN):
            product = product * factor
        total = product.sum()
        total.item()
        turned = time.perf_counter()
        (gradient,) = torch.autograd.grad(total, factor)
        gradient.sum().item()
        ended = time.perf_counter()
        forward, backward = min(forward, (turned - begun) / _CHAIN), min(backward, (ended - turned) / _CHAIN)
        if ended >= end:
            return forward, backward


def _bandwidth(device: str, seconds: float) -> float:
    source = torch.ones(_COPY_BYTES[device], device=device, dtype=torch.uint8)
    target = torch.ones_like(source)
    return 2 * _COPY_BYTES[device] / _shortest(device, lambda: target.copy_(source), seconds)


def _shortest(device: str, work: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of the repetitions that fit, at least one."""
    end, shortest = time.perf_counter() + seconds, float("inf")
    while True:
        shortest = min(shortest, _timed(device, work))
        if time.perf_counter() >= end:
            return shortest


def _timed(device: str, work: Callable[[], object]) -> float:
    if device == "cuda":
        return _timed_on_cuda(work)
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _timed_on_cuda(work: Callable[[], object]) -> float:
    """By the device's own events: the host only queues."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates of one device. Exits 2 where torch has no such device."""
    parser = argparse.ArgumentParser(prog="assay.measure.machine")
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--threads", type=int, help="for kernels on the CPU; by default torch's choice")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        rates = measure_rates(options.device, options.seconds)
    except ValueError as error:
        parser.error(str(error))
    if options.device == "cpu":
        rates = rates.model_copy(update={"link": measure_link()})
    print(rates.model_dump_json())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
