import os
import subprocess

from assay.hardware.resident import Resident


def test_a_living_process_has_resident_memory() -> None:
    found = Resident(os.getpid()).nbytes
    assert found is not None
    assert found > 10 * 2**20


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert Resident(ended.pid).nbytes is None


def test_it_is_read_at_most_once_a_second() -> None:
    one = Resident(os.getpid())
    first = one.nbytes
    held = bytearray(os.urandom(2**20) * 20)
    assert one.nbytes == first
    assert held
