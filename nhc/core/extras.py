"""The distribution's name, and how to install what a command needs and this installation lacks.

The distribution is called `nodehealth`: `nhc` on the Python package index is another project, a home-automation kit.
The command, the import package and the files stay `nhc`. Until `nodehealth` is published, the hints name what works
today: a checkout and a wheel.
"""

from __future__ import annotations

import sys

from nhc import __version__

DISTRIBUTION = "nodehealth"

EXTRAS = ("fleet", "fabric", "ansible", "kubernetes", "nvhcd", "remedy", "console", "aws", "azure", "oci", "gcp")
"""The optional parts that pyproject.toml names, each with the libraries that it needs."""

BROUGHT = {
    "paramiko": "fleet", "ClusterShell": "fleet", "rich": "fleet", "aiohttp": "remedy", "alembic": "remedy",
    "psycopg": "remedy", "sqlalchemy": "remedy", "textual": "console", "urllib3": "kubernetes", "yaml": "kubernetes",
    "botocore": "aws", "grpc": "nvhcd", "msgspec": "remedy",
}  # fmt: skip
"""The extra that brings a library, by the name that is imported. What a command is called says less: `nhc status fleet`
reads the store."""

PACKAGED = "/usr/share/nodehealth/"
"""Where the deb and rpm packages have nhc's code; the libraries of BUNDLED are a package beside it."""

BUNDLED = ("aws", "console", "fleet", "kubernetes", "remedy")
"""The extras whose libraries nodehealth-libs has: those of packaging/libraries.txt, as `make lock` writes it."""


def how_to_install(package: str, extra: str = "", code: str = __file__) -> str:
    """What to type to get the Python package `package`, which belongs to nhc's extra `extra` (one of EXTRAS) if any.

    `code` is where this nhc lies.
    """
    if code.startswith(PACKAGED):
        if extra in EXTRAS and extra not in BUNDLED:
            return f"nhc's packages do not have it: {sys.executable} -m pip install {package}"
        return "install the package nodehealth-libs, of the same version"
    if extra not in EXTRAS:
        return f"pip install {package}"
    wheel = f"{DISTRIBUTION}-{__version__}-py3-none-any.whl"
    return f"pip install '.[{extra}]' in a checkout of nhc, or pip install './{wheel}[{extra}]'"
