"""Inference and the cost of a training, predicted from a datasheet, as text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.blocks import Block, Table
from assay.units import format_bytes, format_count, format_flops, format_seconds

if TYPE_CHECKING:
    from assay.estimator.budget import Budget
    from assay.estimator.inference import Decoding, Inference
    from assay.hardware.devices import Device

_SEQUENCES = (1, 4, 16, 64, 256, 1024)


def inference_report(found: "Inference") -> Iterator[Block]:
    """Yield sizes, a table of times by number of sequences, and where the limits change."""
    from assay.estimator.inference import BITS, cache_bytes_per_token, weights_bytes

    model, each = found.model, cache_bytes_per_token(found.model)
    sizes = ", ".join(f"{format_bytes(weights_bytes(model, bits))} in {bits} bits" for bits in BITS)
    cache = f"{format_bytes(each)} a token, {format_bytes(each * model.context_length)} a sequence"
    facts = (("device", _described(found.device)), ("weights", sizes), ("cache, 16 bits", cache))
    yield Table.of(("inference", ""), facts)
    columns = ("sequences", "memory", "fits", "read the prompts", "add a token", "tokens/s", "limit")
    rows = (_row(found.at(sequences, model.context_length)) for sequences in _SEQUENCES)
    yield f"With {found.bits}-bit weights and {model.context_length} tokens in every sequence:"
    yield Table.of(columns, rows, columns[:2] + columns[3:6])
    yield (
        f"Products limit a token from {found.compute_bound_sequences:.0f} sequences on, if their caches are short. "
        f"From {format_count(found.outgrown_tokens)} tokens on, all sequences together, the cache is larger than the "
        "weights."
    )
    yield "Times are lower bounds: the device's peaks, no launches, no working storage, no scales of quantized weights."


def inference_values(found: "Inference") -> dict[str, Any]:
    """Return the same figures for programs."""
    from assay.estimator.inference import BITS, cache_bytes_per_token, weights_bytes

    model = found.model
    rows = (found.at(sequences, model.context_length) for sequences in _SEQUENCES)
    return {
        "device": found.device.model_dump(mode="json"),
        "bits": found.bits,
        "weights_bytes": {str(bits): weights_bytes(model, bits) for bits in BITS},
        "cache_bytes_per_token": cache_bytes_per_token(model),
        "compute_bound_sequences": found.compute_bound_sequences,
        "outgrown_tokens": found.outgrown_tokens,
        "rows": [one.model_dump(mode="json") | {"tokens_per_second": one.tokens_per_second} for one in rows],
    }


def _row(one: "Decoding") -> tuple[str, ...]:
    return (
        str(one.sequences),
        format_bytes(one.memory_bytes),
        "yes" if one.fits else "no",
        format_seconds(one.prefill_seconds),
        format_seconds(one.decode_seconds),
        format_count(one.tokens_per_second),
        one.limit,
    )


def budget_report(found: "Budget") -> Iterator[Block]:
    """Yield the FLOPs of a training by convention, and its hours, energy and money."""
    rows = [("device", f"{found.devices} × {_described(found.device)}"), ("tokens", format_count(found.tokens))]
    rows += [(f"FLOPs, {name}", format_flops(count)) for name, count in found.flops.items()]
    rows += [
        ("time", f"{format_seconds(found.seconds)} at {found.mfu:.0%} of the peak (MFU)"),
        ("device hours", f"{found.device_hours:,.4g}"),
    ]
    if found.kilowatt_hours is not None:
        rows.append(("energy of the boards", f"{found.kilowatt_hours:,.4g} kWh"))
    if found.money is not None:
        rows.append(("money", f"{found.money:,.0f}, at {found.price:g} for a device hour"))
    yield Table.of(("cost of a training", ""), rows)
    yield (
        "Kaplan counts 6 FLOPs a weight without embeddings and attention; PaLM, all weights and attention; Chinchilla, "
        "every product. Time follows from PaLM's. Measure your MFU with a run: small models reach less."
    )


def budget_values(found: "Budget") -> dict[str, Any]:
    """Return the same figures for programs."""
    names = ("flops", "seconds", "device_hours", "kilowatt_hours", "money")
    asked = found.model_dump(mode="json", exclude={"model"})
    return asked | {name: getattr(found, name) for name in names}


def _described(device: "Device") -> str:
    power = "" if device.watts is None else f", {device.watts:g} W"
    return (
        f"{device.name} ({device.year}): {device.memory_bytes / 1e9:g} GB, {device.bandwidth_bytes / 1e9:,.0f} GB/s, "
        f"{device.half_flops / 1e12:,.0f} TFLOP/s in 16 bits{power}; {device.source}"
    )
