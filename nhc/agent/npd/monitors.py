"""Placeholder until the monitors are in."""
from typing import Any
def load(settings: Any) -> Any:
    return None
