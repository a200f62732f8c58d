"""The loopback between two processes: both numbers are there, and a message takes longer than none."""

from assay.instruments.rates.link import measure_link


def test_two_processes_of_this_machine_measure_what_joins_them() -> None:
    link = measure_link()
    assert 0 < link.latency_seconds < 10
    assert link.bandwidth_bytes > 0
    assert link.seconds(2**24) > link.seconds(0, steps=2)
    assert "measured" in link.source
