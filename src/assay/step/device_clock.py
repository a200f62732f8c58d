"""Times on a device's own clock: events in its queue, which the host puts there without waiting for them."""

import torch


def mark(device: torch.device) -> torch.cuda.Event | None:
    """Put an event with a time into the device's queue and return it; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(first: torch.cuda.Event | None, later: torch.cuda.Event | None) -> float | None:
    """Return the device's seconds between two events that it has reached; None on a CPU."""
    return None if first is None or later is None else float(first.elapsed_time(later)) / 1e3
