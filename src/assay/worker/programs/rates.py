"""The process that measures a device's rates: ``python -m assay.worker.programs.rates [cpu|cuda] [--threads N]``.

It ends when its standard input closes, because then the process that started it has ended. It imports nothing slow
before it watches for that.
"""

import os

from assay.worker.processes.channel import PARENT_GONE, when_closed

if __name__ == "__main__":
    when_closed(0, lambda: os._exit(PARENT_GONE))
    from assay.instruments.rates.torch_rates import main

    raise SystemExit(main())
