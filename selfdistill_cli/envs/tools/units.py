"""Conversion between units of one kind."""

from __future__ import annotations

from selfdistill_cli.envs.tools.calculator import ToolError, tidy

KINDS: dict[str, dict[str, float]] = {
    "length": {"m": 1.0, "km": 1000.0, "cm": 0.01, "mi": 1609.344, "ft": 0.3048, "in": 0.0254},
    "mass": {"g": 1.0, "kg": 1000.0, "lb": 453.59237, "oz": 28.349523125},
    "volume": {"l": 1.0, "ml": 0.001, "gal": 3.785411784, "pt": 0.473176473},
    "time": {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
}
"""Units by kind: how much one of them is in the kind's first unit (exact by definition)."""
TEMPERATURES = ("C", "F", "K")
UNITS: tuple[str, ...] = (*(unit for kind in KINDS.values() for unit in kind), *TEMPERATURES)


def convert(value: float, unit: str, to: str) -> int | float:
    """Return a value in another unit, rounded to 2 digits; raises ToolError naming what fits."""
    for name in (unit, to):
        if name not in UNITS:
            raise ToolError(f"there is no unit '{name:.20}'; known: {', '.join(UNITS)}")
    if unit in TEMPERATURES and to in TEMPERATURES:
        return tidy(_temperature(value, unit, to), 2)
    for name, kind in KINDS.items():
        if unit in kind:
            if to not in kind:
                raise ToolError(f"'{unit}' is a unit of {name}; so are: {', '.join(kind)}")
            return tidy(value * kind[unit] / kind[to], 2)
    raise ToolError(f"'{unit}' is a unit of temperature; so are: {', '.join(TEMPERATURES)}")


def _temperature(value: float, unit: str, to: str) -> float:
    celsius = {"C": value, "F": (value - 32) * 5 / 9, "K": value - 273.15}[unit]
    return {"C": celsius, "F": celsius * 9 / 5 + 32, "K": celsius + 273.15}[to]
