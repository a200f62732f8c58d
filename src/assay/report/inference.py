"""Inference, predicted from a datasheet, as text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.estimator.inference import Inference
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.units import finite, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from assay.config.model import ModelConfig
    from assay.estimator.inference import Decoding
    from assay.hardware.devices import Device

_SEQUENCES = (1, 4, 16, 64, 256, 1024)
_SHARES = (64, 16, 4, 1)
"""Parts of the configured context for which speeds are shown."""


class InferenceView(Shown[Inference]):
    """Inference on a device, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield sizes, a table of times by number of sequences, and where the limits change."""
        from assay.estimator.inference import BITS, cache_bytes_per_token, weights_bytes

        found = self.found
        model, each = found.model, cache_bytes_per_token(found.model)
        sizes = ", ".join(f"{format_bytes(weights_bytes(model, bits))} in {bits} bits" for bits in BITS)
        shared = model.n_head // model.kv_heads
        cache = f"{format_bytes(each)} a token, {format_bytes(each * model.context_length)} a sequence"
        cache += f"; {shared} query heads share one of its heads" if shared > 1 else ""
        facts = (("device", describe_model(found.device)), ("weights", sizes), ("cache, 16 bits", cache))
        yield Table.of(("inference", ""), facts)
        columns = ("sequences", "memory", "fits", "read the prompts", "add a token", "tokens/s", "limit")
        rows = (_row(found.at(sequences, model.context_length)) for sequences in _SEQUENCES)
        yield f"With {found.bits}-bit weights and {model.context_length} tokens in every sequence:"
        yield Table.of(columns, rows, columns[:2] + columns[3:6])
        yield "Tokens/s by the tokens in every sequence:"
        contexts = _contexts(model)
        counts = tuple(f"{one:,}" for one in contexts)
        yield Table.of(("sequences", *counts), (_speeds(found, one, contexts) for one in _SEQUENCES), counts)
        yield f"Limits on {found.device.name}, by the bits of a weight:"
        titles = ("bits", "weights", "products limit from", "and from, full", "cache is larger from")
        yield Table.of(titles, (_limits(found.model_copy(update={"bits": bits})) for bits in BITS), titles[1:])
        yield (
            "Products limit a token from so many sequences on, with short and with full caches. The cache is larger "
            "than the weights from so many tokens on, in all sequences together. Sequences of more than "
            f"{format_count(found.compute_bound_tokens)} tokens are limited by reading their caches, however many they "
            "are."
        )
        yield (
            "Times are lower bounds: the device's peaks, no launches, no working storage, no scales of quantized "
            f"weights.{_experts(model)} It fits if weights and cache leave room for CUDA's context."
        )

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        from assay.estimator.inference import BITS, cache_bytes_per_token, weights_bytes

        found = self.found
        model = found.model
        rows = (found.at(sequences, model.context_length) for sequences in _SEQUENCES)
        return {
            "device": found.device.model_dump(mode="json"),
            "bits": found.bits,
            "weights_bytes": {str(bits): weights_bytes(model, bits) for bits in BITS},
            "cache_bytes_per_token": cache_bytes_per_token(model),
            "compute_bound_sequences": found.compute_bound_sequences(),
            "compute_bound_tokens": finite(found.compute_bound_tokens),
            "outgrown_tokens": found.outgrown_tokens,
            "rows": [_value(one) for one in rows],
            "by_context": [_value(found.at(count, one)) for count in _SEQUENCES for one in _contexts(model)],
            "by_bits": {str(bits): _limit_values(found.model_copy(update={"bits": bits})) for bits in BITS},
        }


def _experts(model: "ModelConfig") -> str:
    """Return which experts are read; empty for a model without."""
    if model.n_expert is None:
        return ""
    return f" Of {model.n_expert} experts so many are read as balanced routers send the tokens to."


def _value(one: "Decoding") -> dict[str, Any]:
    return one.model_dump(mode="json") | {"tokens_per_second": one.tokens_per_second}


def _contexts(model: "ModelConfig") -> tuple[int, ...]:
    """Return parts of the configured context, each once."""
    return tuple(dict.fromkeys(max(1, model.context_length // share) for share in _SHARES))


def _speeds(found: Inference, sequences: int, contexts: tuple[int, ...]) -> tuple[str, ...]:
    at = (found.at(sequences, one) for one in contexts)
    return (str(sequences), *(format_count(one.tokens_per_second) if one.fits else "does not fit" for one in at))


def _limits(found: Inference) -> tuple[str, ...]:
    short, full = found.compute_bound_sequences(), found.compute_bound_sequences(found.model.context_length)
    return (
        str(found.bits),
        format_bytes(found.weights_bytes),
        f"{short:,.0f} sequences",
        "never" if full is None else f"{full:,.0f} sequences",
        f"{format_count(found.outgrown_tokens)} tokens",
    )


def _limit_values(found: Inference) -> dict[str, Any]:
    return {
        "compute_bound_sequences": found.compute_bound_sequences(),
        "compute_bound_sequences_full": found.compute_bound_sequences(found.model.context_length),
        "outgrown_tokens": found.outgrown_tokens,
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


def describe_model(device: "Device") -> str:
    power = "" if device.watts is None else f", {device.watts:g} W"
    memory = format_bytes(device.memory_bytes)
    return (
        f"{device.name} ({device.year}): {memory}, {device.bandwidth_bytes / 1e9:,.0f} GB/s, "
        f"{device.half_flops / 1e12:,.0f} TFLOP/s in 16 bits{power}; {device.source}"
    )
