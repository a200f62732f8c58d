"""Measure torch's rates: ``python -m assay.instruments.rates.torch_rates [cpu|cuda]`` prints one line of JSON.

The matmul rate of a dtype is that of the fastest of repeated large square products, 2·n³ FLOPs each. It is a roof to
compare training steps with, not an average. n doubles until a product fills a share of the allowed time. A dtype
without hardware support may be a hundred times slower, and is then measured on a smaller product. The right factor is
tried as stored and transposed, as in a linear layer: for converted dtypes the two rates can differ sevenfold. Factors
are random normal numbers, because a GPU at its power limit multiplies ones and zeros faster. A GPU does each product
alone and twenty times in a row, since its clock falls under a longer load.

No rate rests on one trial (`instruments.rates.timed_operators`). A float32 rate far below the float64 rate contradicts
it, and is measured again. The record names the rates that stay unconfirmed or contradictory, and the share of the cores
that others had meanwhile.

The bandwidth is that of a copy too large for any cache, counting bytes read and bytes written. The launch time is that
of an operation on a few numbers, in a long chain. On a CPU, single operators and the link between two processes are
measured as well.

The link is gloo's loopback between two processes of this machine. An all-reduce of two ranks sends its payload once, in
two steps. So a few bytes take 2α and a large payload 2α + B/β (Hockney 1994; `cost.collectives`). Both are the fastest
of several repetitions on a machine that should be idle: a best case, like the other rates. Contention of more than two
ranks for the shared memory is not measured.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from assay.files import scratch
from assay.hardware import Rates
from assay.hardware.links import Link
from assay.instruments.rates.timed_operators import OthersShare, measure_operators, repeat_trial
from assay.step.device_queue import mark, seconds_between
from assay.step.float8_products import widen_products

_RANKS, _STEPS = 2, 2
_SMALL, _LARGE = 8, 2**24
_REPETITIONS = {_SMALL: 200, _LARGE: 10}


def measure_link() -> Link:
    """Measure the link with two processes of one thread each.

    Raises torch's `ProcessRaisedException` if a process fails, for instance because they cannot connect.
    """
    with scratch("link") as folder:
        spawn(_rank, (str(folder),), nprocs=_RANKS)  # type: ignore[no-untyped-call]
        small, large = map(float, (folder / "seconds").read_text().split())
    return Link(
        name="gloo over loopback",
        latency_seconds=small / _STEPS,
        bandwidth_bytes=_LARGE / max(large - small, large / 2),
        source=f"measured here with torch {torch.__version__}",
    )


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=_RANKS)
    seconds = [_fastest(nbytes, times) for nbytes, times in _REPETITIONS.items()]
    if rank == 0:
        Path(folder, "seconds").write_text(" ".join(map(repr, seconds)))
    dist.destroy_process_group()


def _fastest(nbytes: int, times: int) -> float:
    payload, fastest = torch.zeros(nbytes, dtype=torch.uint8), float("inf")
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(payload)
        fastest = min(fastest, time.perf_counter() - begun)
    return fastest


DTYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn")
_SMALLEST = 256
_LARGEST = {"cpu": 4096, "cuda": 16384}
_COPY_BYTES = {"cpu": 2**28, "cuda": 2**30}
_PRODUCTS = 2
"""Least number of products of the final size that should fit the allowed time."""
_AGAIN = 2
"""Number of times that a doubtful rate is measured again."""
_BURSTS = {"cpu": (1,), "cuda": (1, 20)}
"""Number of products in a row that one trial times."""
_CLOSE = 0.1
"""Largest relative difference between two measurements that agree."""
_CHAIN = 256
"""Number of small operations in a chain, each on the result of the previous one."""


def measure_rates(device: str, seconds: float = 2.0) -> Rates:
    """Measure `cpu` or `cuda` within about `seconds`. Raises `ValueError` if torch has no such device."""
    if device not in _LARGEST or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"this torch has no device {device!r}")
    torch.set_float32_matmul_precision("highest")
    share = seconds / (len(DTYPES) + 2)
    with OthersShare() as others:
        forward, backward = _launch_seconds(device, share)
        products = {dtype: _matmul_rate(device, dtype, share) for dtype in DTYPES}
        bandwidth = _bandwidth(device, share)
        rates = Rates(
            device=device,
            matmul_flops=_flops(products),
            bandwidth_bytes=bandwidth.per_second,
            launch_seconds=forward,
            backward_launch_seconds=backward,
            threads=torch.get_num_threads(),
            torch=torch.__version__,
        )
        for _ in range(_AGAIN):
            for dtype in _doubtful(rates, products):
                products[dtype] = _better(products[dtype], _matmul_rate(device, dtype, share))
            rates = rates.model_copy(update={"matmul_flops": _flops(products)})
    unconfirmed = () if bandwidth.confirmed else ("copy",)
    doubtful = (*_doubtful(rates, products), *unconfirmed)
    return rates.model_copy(update={"doubtful": doubtful, "others_share": others.share})


class _Rate(NamedTuple):
    """FLOPs or bytes per second, and whether two trials agree on it."""

    per_second: float
    confirmed: bool


def _flops(products: Mapping[str, _Rate | None]) -> dict[str, float]:
    return {dtype: rate.per_second for dtype, rate in products.items() if rate is not None}


def _doubtful(rates: Rates, products: Mapping[str, _Rate | None]) -> list[str]:
    """Dtypes whose rate is unconfirmed, and float32 if its rate contradicts that of float64."""
    found = [dtype for dtype, rate in products.items() if rate is not None and not rate.confirmed]
    return list(dict.fromkeys((*found, "float32") if rates.contradictory else found))


def _better(one: _Rate | None, other: _Rate | None) -> _Rate | None:
    """The faster of two rates, confirmed if the other agrees with it."""
    if one is None or other is None:
        return one or other
    faster, slower = max(one, other), min(one, other)
    return faster._replace(confirmed=faster.confirmed or slower.per_second * (1 + _CLOSE) >= faster.per_second)


def _matmul_rate(device: str, dtype: str, seconds: float) -> _Rate | None:
    """Measure the FLOP/s of a dtype's products; None if the device does not support them."""
    size, fastest = _SMALLEST, None
    while True:
        try:
            left, right = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
            # The first trial of a size is also its warm-up.
            timed = [partial(_timed, device, one, times) for one in _products(left, right) for times in _BURSTS[device]]
            once, trial = min(((repeat_trial(one), one) for one in timed), key=lambda found: found[0].seconds)
        except RuntimeError:
            return fastest
        fastest = _better(fastest, _Rate(2 * size**3 / once.seconds, once.confirmed))
        # The next size takes eight times as long.
        if 8 * once.seconds * _PRODUCTS > seconds or size >= _LARGEST[device]:
            last = repeat_trial(trial, seconds)
            return _better(fastest, _Rate(2 * size**3 / last.seconds, last.confirmed))
        size *= 2


def _products(left: torch.Tensor, right: torch.Tensor) -> list[Callable[[], object]]:
    if left.dtype.itemsize == 1:  # the float8 kernel needs scales, and takes the right factor only transposed
        scale = torch.ones((), device=left.device)
        widen_products()
        return [lambda: torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16)]
    out = torch.empty_like(left)
    return [lambda: torch.mm(left, right, out=out), lambda: torch.mm(left, right.t(), out=out)]


def _launch_seconds(device: str, seconds: float) -> tuple[float, float]:
    """Seconds per operation and per backward operation, by the host's clock, read after each chain has finished."""
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


def _bandwidth(device: str, seconds: float) -> _Rate:
    source = torch.ones(_COPY_BYTES[device], device=device, dtype=torch.uint8)
    target = torch.ones_like(source)
    found = repeat_trial(partial(_timed, device, lambda: target.copy_(source)), seconds)
    return _Rate(2 * _COPY_BYTES[device] / found.seconds, found.confirmed)


def _timed(device: str, work: Callable[[], object], times: int = 1) -> float:
    """Return the seconds of one of several calls in a row."""
    if device == "cuda":
        return _timed_on_cuda(work, times)
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) / times


def _timed_on_cuda(work: Callable[[], object], times: int) -> float:
    """Seconds of a call, between two events of the device; the host only queues the work."""
    device = torch.device("cuda")
    begin = mark(device)
    for _ in range(times):
        work()
    end = mark(device)
    torch.cuda.synchronize()
    seconds = seconds_between(begin, end)
    assert seconds is not None
    return seconds / times


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates of one device as JSON. Exits with status 2 if torch has no such device."""
    parser = argparse.ArgumentParser(prog="assay.instruments.rates.torch_rates")
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--threads", type=int, help="threads of CPU kernels; by default torch's choice")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        rates = measure_rates(options.device, options.seconds)
    except ValueError as error:
        parser.error(str(error))
    if options.device == "cpu":
        rates = rates.model_copy(update={"operators": measure_operators(rates), "link": measure_link()})
    print(rates.model_dump_json())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
