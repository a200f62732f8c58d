"""JSON files of a checkpoint."""

import json
from pathlib import Path
from typing import Any

from assay.config.reading import LONGEST_BYTES, read_bytes
from assay.errors import UsageError


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a checkpoint's JSON file. Raises `UsageError` if it is missing, unreadable or no object."""
    try:
        raw = read_bytes(path, LONGEST_BYTES)
        if raw is None:
            raise UsageError(f"{path} is longer than 1 MiB, so it is no configuration of a checkpoint")
        values = json.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; name a folder with a Hugging Face checkpoint") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a JSON object; download it again")
    return values
