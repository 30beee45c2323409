"""A test that needs a real service says so here: it skips where the service is missing, and fails in CI."""

from __future__ import annotations

import os
from typing import NoReturn, Optional

import pytest


def need(what: str, found: object, why: str = "") -> None:
    """Go on only if `found` is true. Under NHC_REQUIRE=all (or a list that names `what`) missing is a failure."""
    if not found:
        missing(what, why)


def missing(what: str, why: Optional[str] = None) -> NoReturn:
    """Skip, or fail where the environment demands this service."""
    said = f"{what} is missing{f': {why}' if why else ''}"
    required = os.environ.get("NHC_REQUIRE", "")
    if required == "all" or what in required.split(","):
        pytest.fail(f"{said} (NHC_REQUIRE={required})", pytrace=False)
    pytest.skip(said)
