"""A question of *Scaling*: a law, a budget of FLOPs, and the devices that should spend it, as an address has it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from shlex import quote
from urllib.parse import urlencode

from assay.config.home import Home
from assay.errors import UsageError, among, short_text
from assay.estimator.cost import USUAL_MFU
from assay.hardware.devices import DEVICES
from assay.scaling.published import FRONTIERS
from assay.units import parse_count

STUDY = "study:"
"""Beginning of the name of a law that is fitted to a study."""
POINTS = "points:"
"""Beginning of the name of a law that is fitted to a CSV file of the home's folder `points`."""
LEAST_POWER, MOST_POWER = 9, 27
"""Powers of ten of the budgets that the slider reaches."""


@dataclass(frozen=True)
class LawQuestion:
    """A budget, the law that is asked, and the devices of the bill."""

    law: str = "Besiroglu"
    """A published law, `study:` with the id of a study, or `points:` with the name of a file."""
    flops: float = 1e21
    device: str = "h100"
    devices: int = 8
    mfu: float = USUAL_MFU
    price: float | None = None
    """Money for an hour of one device."""

    @property
    def own(self) -> bool:
        """True if the law is fitted to points of the home."""
        return self.law.startswith((STUDY, POINTS))

    @property
    def query(self) -> str:
        """The question as the query of an address, without whatever is the default."""
        defaults = LawQuestion()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {name: one for name, one in values.items() if one != getattr(defaults, name)}
        return urlencode(
            {name: f"{one:.10g}".replace("e+", "e") if isinstance(one, float) else one for name, one in given.items()}
        )

    @property
    def budget(self) -> str:
        """The FLOPs as a reader writes them, such as ``1.2e21``."""
        return f"{self.flops:.4g}".replace("e+", "e")

    def command(self, home: Home) -> str:
        """Return the command that answers it."""
        points = f" --points {quote(self._source(home))}" if self.own else ""
        where = f" --device {self.device} --devices {self.devices} --mfu {self.mfu:g}"
        price = "" if self.price is None else f" --price {self.price:g}"
        return f"assay scaling optimal --flops {self.budget}{points}{where}{price}"

    def _source(self, home: Home) -> str:
        """Return the study or the file of an own law, as a command names it."""
        if self.law.startswith(STUDY):
            return self.law.removeprefix(STUDY)
        return str(home.points / self.law.removeprefix(POINTS))


def read(query: Mapping[str, str]) -> LawQuestion:
    """Return the question of an address. Raises `UsageError` for an unknown name and for an impossible number."""
    defaults = LawQuestion()
    law = query.get("law") or defaults.law
    if law not in FRONTIERS and not law.startswith((STUDY, POINTS)):
        raise UsageError(f"there is no law {short_text(law)}{among(law, FRONTIERS)}")
    device = query.get("device") or defaults.device
    if device not in DEVICES:
        raise UsageError(f"there is no device {short_text(device)}{among(device, DEVICES)}")
    devices = _number("devices", query.get("devices"), 1, 1e6) or defaults.devices
    return LawQuestion(
        law=law,
        flops=_number("FLOPs", query.get("flops"), 10.0**LEAST_POWER, 10.0**MOST_POWER) or defaults.flops,
        device=device,
        devices=int(devices),
        mfu=_number("MFU", query.get("mfu"), 1e-3, 1.0) or defaults.mfu,
        price=_number("price", query.get("price"), 0.0, 1e6),
    )


def _number(name: str, text: str | None, least: float, most: float) -> float | None:
    """Return a number of an address; None if it is not there. Raises `UsageError`."""
    if text is None or not text.strip():
        return None
    try:
        value = parse_count(text[:40])
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(f"{name}={short_text(text)} is not possible; give a number from {least:g} to {most:g}")
    return value
