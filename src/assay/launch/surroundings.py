"""The environment of a process that compiles: what torch's compiler keeps lies in the home, not in `/tmp`."""

import os

from assay.config.home import Home


def surroundings(home: Home) -> dict[str, str]:
    """Return this process's environment with the folder of the compiler's cache, unless the user has named one."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(home.cache / "torchinductor"), **os.environ}
