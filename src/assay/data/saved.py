"""A folder of `datasets` with several splits, as `DatasetDict.save_to_disk` writes it.

Its data are Arrow streams, which need pyarrow and not `datasets`. A folder of one split is read as any other folder.
"""

import json
from pathlib import Path

from assay.errors import UsageError

_SPLITS = "dataset_dict.json"
_VALIDATION = ("validation", "valid", "val", "dev")


def saved_splits(folder: Path) -> dict[str, Path]:
    """Return the folder of each split, by its name here: `train`, `validation` or `test`, or else its own name.

    Empty if the folder is no such data set. Raises `UsageError` if its list of splits is damaged or has no `train`.
    """
    try:
        names = json.loads((folder / _SPLITS).read_bytes())["splits"]
        found = {str(name): folder / str(name) for name in names}
    except OSError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / _SPLITS} is damaged; save the data set again") from error
    if "train" not in found:
        there = ", ".join(found) or "none"
        raise UsageError(f"{folder} is a data set without a split 'train' (it has {there}); name the folder of a split")
    validation = next((name for name in _VALIDATION if name in found), None)
    return {"validation" if name == validation else name: place for name, place in found.items()}
