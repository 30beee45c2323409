"""The settings of an adapter, a repairer or another part: declared as a settings file is, given to it as texts.

@declared.settings
class AwsSettings(NamedTuple):
region: str = declared.text("region", "", "default: the environment's")

class AwsRepairer:
SETTINGS = AwsSettings                                # what `--check-settings` and the reference page ask for

def __init__(self, settings=None, environ=None, timeout=30.0):
own = read(AwsSettings, settings)                 # the values, or SettingError
"""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple, Optional, Type, TypeVar

from nhc.core.plugins import NoAdapter, PartKind
from nhc.core.settings import declared
from nhc.core.settings.settings_file import SettingsError, Table
from nhc.marks.ports.adapter import SettingError

T = TypeVar("T")
Given = Optional[Mapping[str, str]]
"""Settings, or an environment, that a part is made with; None: none, or the process's own."""


def read(kind: Type[T], settings: Given, section: str = "") -> T:
    """The values. Messages put `section` before a key if the caller does not know the part's table.

    Raises SettingError.
    """
    try:
        return declared.of_texts(kind, settings or {})
    except SettingsError as error:
        raise SettingError(f"{section}.{error.key}" if section else error.key, error.problem) from None


class PartTable(NamedTuple):
    """A part's own table in a settings file: its place, and the kind and name of the part."""

    where: str
    kind: PartKind
    name: str
    settings: Mapping[str, str]


def check(file: Table, tables: Iterable[PartTable]) -> None:
    """Read the tables of parts that declare their settings; none is constructed. Raises SettingsError."""
    for table in tables:
        at = file
        for word in table.where.split("."):
            at = at.table(word)
        try:
            kind = getattr(table.kind.open(table.name), "SETTINGS", None)
        except NoAdapter as error:
            raise SettingsError(f"{at.place('type')}{table.where}: {error}") from None
        try:
            if kind is not None:
                read(kind, table.settings)
        except SettingError as error:
            raise SettingsError(f"{at.place(error.key)}{table.where}.{error}") from None
