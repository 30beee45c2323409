"""What NVML said of one device (`nhc.node.facts.nvml`), read by type, with what could not be read noted on the way."""

from __future__ import annotations

from nhc.core.light import TYPE_CHECKING
from nhc.node.facts.nvml_codes import ABSENT, NOT_SUPPORTED, error_code, error_text

if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Type, TypeVar

    from nhc.node.facts.nvml_binding import Plain

    T = TypeVar("T")


class NvmlAnswers:
    """One device's answers by their type. What could not be read, or is of another type, is noted on the way."""

    def __init__(self, answers: Mapping[str, Plain], unread: Optional[Dict[str, str]] = None) -> None:
        self.answers = answers
        self.unread: Dict[str, str] = {} if unread is None else unread

    def get(self, key: str, area: str) -> Plain:
        """The value at `key`, None where there is none; a failure other than "not supported" is noted under `area`."""
        value = self.answers.get(key, {"error": NOT_SUPPORTED})
        code = error_code(value)
        if code is None:
            return value
        if code not in ABSENT:
            self.unread.setdefault(area, error_text(code))
        return None

    def whole(self, key: str, area: str) -> Optional[int]:
        """A whole number."""
        return self._of_type(int, key, area)

    def text(self, key: str, area: str) -> Optional[str]:
        """A text."""
        return self._of_type(str, key, area)

    def table(self, key: str, area: str) -> NvmlAnswers:
        """A structure's members; none where it was not read."""
        return NvmlAnswers(self._of_type(dict, key, area) or {}, self.unread)

    def entries(self, key: str, area: str) -> Optional[List[Plain]]:
        """A list."""
        return self._of_type(list, key, area)

    def wholes(self, key: str, area: str, count: int) -> Optional[List[int]]:
        """So many whole numbers."""
        entries = self.entries(key, area)
        numbers = [entry for entry in entries or () if isinstance(entry, int)]
        if entries is None or len(numbers) == len(entries) == count:
            return None if entries is None else numbers
        self._odd(key, area)
        return None

    def field(self, key: str, area: str) -> Optional[int]:
        """A field value (`nhc.node.facts.nvml.DEVICE_FIELDS`)."""
        fields = self.answers.get("fields")
        return NvmlAnswers(fields, self.unread).whole(key, area) if isinstance(fields, dict) else None

    def _of_type(self, kind: Type[T], key: str, area: str) -> Optional[T]:
        value = self.get(key, area)
        if value is None or isinstance(value, kind):
            return value
        self._odd(key, area)
        return None

    def _odd(self, key: str, area: str) -> None:
        self.unread.setdefault(area, f"NVML's answer for {key} makes no sense")
