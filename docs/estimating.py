"""docs/estimating.md: what a training takes, computed from the package's ledger, datasheets and published laws."""

import math
from collections.abc import Iterator

from questions import (
    BUDGETS,
    ENDLESS,
    GENERATIONS,
    HUNDRED_TRILLION,
    PROPERTIES,
    STACKS,
    YEAR,
    converged,
    doubling_years,
    flops_for,
    largest,
    line,
    optimal_tokens,
    shape,
    training_seconds,
)

from assay.config import load
from assay.cost import parameter_count
from assay.cost.closed_forms import state_bytes
from assay.cost.flop_conventions import CONVENTIONS, palm
from assay.estimator.cost import USUAL_MFU
from assay.estimator.inference import Inference, weights_bytes
from assay.hardware.devices import DEVICES, MIB
from assay.scaling.optimal import Text
from assay.scaling.published import BESIROGLU
from assay.units import format_bytes

_HEAD = """# What a training takes

Questions that are asked before a training, and their answers by arithmetic. The ledger of `assay estimate` counts
bytes, datasheets give rates, and published laws give losses. Nothing on this page was measured; [how each number is
made](numbers.md) has the errors of such predictions. `docs/estimating.py` computes the page.
"""

_LARGEST = """
## What is the largest model that trains on one device?

The models are GPTs with heads of 128 channels, as many heads as layers, and GPT-3's ratio of width to depth. A step has
one sequence of 1,024 tokens. *Nothing* is hand-coded attention and AdamW in 32 bits. *Everything* is fused attention,
recomputed blocks, a loss in pieces, weights in 16 bits, and an update of each weight within backward. The tensors of a
step fill the memory here. On a device the driver, libraries and fragmentation take some of it.

"""

_SERVING = """
## Training or inference?

A parameter takes 16 bytes in training with Adam in mixed precision, and 2, 1 or half a byte in inference. A token takes
6 FLOPs a parameter in training, and 2 in inference. So a device serves a model eight times as large as it trains. The
table has Llama 3.1 8B: {states:.0f} GB of weights, gradients and state in training, {half:.1f} GB of weights in 16
bits. Training assumes 40 % of the peak and as many devices as needed. Inference is at the device's peaks, with 8,192
tokens in every sequence.

"""

_SERVED = """
Reading a prompt is as fast as products allow. Generating reads all weights for each token, so one sequence uses at most
two percent of the products. More sequences share that reading, until their caches take longer than the weights
(`assay inference llama-3.1-8b --device h100`).
"""

_BRAIN = """
## What would a hundred trillion parameters take?

| | |
| --- | --- |
"""

_BRAIN_END = """
A token has 4 to 5 bytes of text, so twenty tokens a parameter are 8 to 10 PB, and not the 180 PB that are sometimes
said. The states of a training fit into large installations of today, and the text may exist. Time is the obstacle.
[Plans](plans.md) divides such a step among 106,496 devices.
"""

_CONVERGENCE = """
## Do we need to train to convergence?

No. By the law of Besiroglu et al. (arXiv:2404.10102), L = E + A/N^α + B/D^β, a loss has a part for the size and a part
for the data. The optimum spends on both. The table has models of {size} parameters: their loss after multiples of the
{optimal} tokens that are optimal for them, and the distance from the loss that endless data would give.

| tokens | times the optimum | FLOPs | loss | above endless data |
| --- | --- | --- | --- | --- |
"""

_CONVERGED = """
The next table spends the same FLOPs on the optimum, and on a smaller model that ends 1 % above its loss on endless
data. The last column has the FLOPs with which an optimum has the loss of that smaller model.

| FLOPs | optimum | its loss | within 1 % of convergence | its loss | FLOPs for that loss |
| --- | --- | --- | --- | --- | --- |
"""

_CONVERGED_END = """
Training beyond the optimum has one good reason: a smaller model costs less in every token that it generates. Llama 3.1
8B has 15 trillion tokens (arXiv:2407.21783), {ratio:.0f} times the optimum of its size by this law.
"""

_FASTER = """
## How fast do computers get faster?

A line is drawn through the logarithms of the datasheets below, by year. With four to five devices the times are rough;
the error is that of the fit.

| | devices | doubles every | tenfold in |
| --- | --- | --- | --- |
"""

_FASTER_END = """
Products grow faster than memory and its bandwidth. So techniques that save bytes at the price of FLOPs, such as
recomputation, gain with each generation. If products go on so, a hundred thousand devices train the hundred trillion
parameters above within a year of training in about {years:.0f} years.
"""

_CONVENTIONS = """
## What is a FLOP of training?

Three papers count differently, so a figure means little without its convention. Kaplan (arXiv:2001.08361) counts 6
FLOPs a parameter, without embeddings and attention. PaLM (arXiv:2204.02311) counts all parameters, and attention with
both halves of its square. Chinchilla (arXiv:2203.15556) counts every product, the embedding's and the softmax too. MFU,
hours and money here follow PaLM. The table has FLOPs of a token in training, at the context of the preset.

| preset | parameters | context | Kaplan | PaLM | Chinchilla |
| --- | --- | --- | --- | --- | --- |
"""

_SHEETS = """
## Which devices are known?

They are the names for `--device`. Rates are peaks of dense products in 16 bits that add up in 32 bits. The ridge is the
number of FLOPs for each byte of memory traffic at which neither waits. Memory is what the driver shows, and what torch
sees of it; a step has that less a context of CUDA. `hardware/devices.py` has the source of each.

| `--device` | year | MiB by its driver | GiB for torch | GB/s | TFLOP/s | W | ridge | source |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def estimating() -> str:
    """Return the page."""
    first = (_HEAD, _LARGEST, *_largest(), *_serving(), _BRAIN, *_brain(), _BRAIN_END, *_convergence(), *_faster())
    return "".join((*first, _CONVENTIONS, *_conventions(), _SHEETS, *_sheets()))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _power(number: float, digits: int = 1) -> str:
    mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _rule(columns: int) -> str:
    return _row(*["---"] * columns)


def _largest() -> Iterator[str]:
    devices = [DEVICES[name] for name in BUDGETS]
    yield _row("", *(f"{device.name}, {format_bytes(device.memory_bytes)}" for device in devices))
    yield _rule(len(devices) + 1)
    for name, techniques in STACKS.items():
        found = (largest(techniques, device.memory_bytes) for device in devices)
        counts = ((layers, parameter_count(shape(layers, techniques).model)) for layers in found)
        yield _row(name, *(f"{count / 1e9:.1f} billion, {layers} layers" for layers, count in counts))


def _serving() -> Iterator[str]:
    model = load("llama-3.1-8b").model
    count = parameter_count(model)
    yield _SERVING.format(states=sum(state_bytes(count)) / 1e9, half=weights_bytes(model, 16) / 1e9)
    columns = ("device", "trains on", "reads", "generates, one sequence", "generates, as many as fit")
    yield _row(*columns) + _rule(len(columns))
    for device in DEVICES.values():
        found = Inference(model=model, device=device, bits=16)
        one, length = found.at(1, model.context_length), model.context_length
        many = found.at(
            max(1, (device.memory_bytes - found.weights_bytes) // (one.memory_bytes - found.weights_bytes)), length
        )
        trained = f"{USUAL_MFU * device.half_flops / palm(model):,.0f} tokens/s"
        if not one.fits:
            yield _row(device.name, trained, *["does not fit"] * 3)
            continue
        rates = (length / one.prefill_seconds, one.tokens_per_second, many.tokens_per_second)
        read, single, batch = (f"{rate:,.0f} tokens/s" for rate in rates)
        yield _row(device.name, trained, read, single, f"{batch}, {many.sequences} sequences")
    yield _SERVED


def _brain() -> Iterator[str]:
    device, count = DEVICES["h200"], HUNDRED_TRILLION
    states, tokens, halves = sum(state_bytes(count)), 20 * count, 2 * count
    years = training_seconds(count, tokens, 100_000, device) / YEAR
    energy = years * 1e5 * YEAR / 3600 * (device.watts or 0) / 1000
    held, served = (f"the memory of {nbytes / device.memory_bytes:,.0f} H200s" for nbytes in (states, halves))
    low, high = (nbytes / 1e15 for nbytes in Text(tokens).nbytes)
    text = f"{low:.0f} to {high:.0f} PB of text"
    rows = {
        "weights, gradients and Adam's state": f"{states / 1e15:.1f} PB, {held}",
        "tokens, twenty a parameter": f"{_power(tokens, 0)}, {text}",
        "FLOPs, 6 for each parameter and token": _power(6 * count * tokens),
        "time of 100,000 H200s at 40 % of their peak": f"{years:,.0f} years",
        "energy of their boards": f"{energy / 1e9:,.0f} TWh",
        "weights in 16 bits, for inference": f"{halves / 1e12:.0f} TB, {served}",
        "a token, at the bandwidth of those": f"{device.memory_bytes / device.bandwidth_bytes * 1e3:.0f} ms",
    }
    yield from (_row(*one) for one in rows.items())


def _convergence() -> Iterator[str]:
    law, size = BESIROGLU, 1e9
    best = optimal_tokens(law, size)
    yield _CONVERGENCE.format(size="a billion", optimal=f"{best / 1e9:.1f} billion")
    floor = float(law.loss(size, ENDLESS))
    for times in (1, 4, 16, 64, 256):
        tokens = times * best
        loss = float(law.loss(size, tokens))
        yield _row(_power(tokens), str(times), _power(6 * size * tokens), f"{loss:.3f}", f"{loss / floor - 1:.1%}")
    yield _CONVERGED
    for flops in (1e19, 1e21, 1e23, 1e25):
        whole, small = law.optimum(flops), converged(law, flops)
        best_loss, loss = (float(law.loss(*one)) for one in (whole, small))
        least = flops_for(law, loss)
        sizes = (f"{_power(count)} parameters, {_power(tokens)} tokens" for count, tokens in (whole, small))
        (first, second), share = sizes, f"{_power(least)}, 1/{flops / least:,.0f}"
        yield _row(_power(flops, 0), first, f"{best_loss:.3f}", second, f"{loss:.3f}", share)
    llama = parameter_count(load("llama-3.1-8b").model)
    yield _CONVERGED_END.format(ratio=15e12 / optimal_tokens(law, llama))


def _faster() -> Iterator[str]:
    yield _FASTER
    for name in GENERATIONS:
        for what, value in PROPERTIES.items():
            if len({value(device) for device in line(name)}) > 2:  # three cards with two sizes of memory are no trend
                years, error = doubling_years(line(name), what)
                each = (f"{years:.1f} ± {error:.1f} years", f"{years * math.log2(10):.0f} years")
                yield _row(f"{name}: {what}", str(len(line(name))), *each)
    years, _ = doubling_years(line("NVIDIA's for data centres"), "products in 16 bits")
    slow = training_seconds(HUNDRED_TRILLION, 20 * HUNDRED_TRILLION, 100_000, DEVICES["h200"]) / YEAR
    yield _FASTER_END.format(years=years * math.log2(slow))


def _conventions() -> Iterator[str]:
    for preset in ("gpt2-124m", "gpt2-1558m", "qwen2.5-0.5b", "qwen3-0.6b", "llama-3.2-1b", "llama-3.1-8b"):
        model = load(preset).model
        counts = (_power(count(model), 3) for count in CONVENTIONS.values())
        yield _row(f"`{preset}`", f"{parameter_count(model):,}", f"{model.context_length:,}", *counts)


def _sheets() -> Iterator[str]:
    for name, device in DEVICES.items():
        yield _row(
            f"`{name}`",
            str(device.year),
            f"{device.driver_bytes // MIB:,}",
            f"{device.memory_bytes / 2**30:.1f}",
            f"{device.bandwidth_bytes / 1e9:,.0f}",
            f"{device.half_flops / 1e12:,.0f}",
            "not published" if device.watts is None else f"{device.watts:g}",
            f"{device.ridge:.0f}",
            device.source,
        )
