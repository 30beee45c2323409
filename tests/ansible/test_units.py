"""One unit, two places: adapters/systemd for packages, the role's templates for Ansible."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.require import need

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "adapters/systemd"
ROLE = ROOT / "playbooks/collections/ansible_collections/nhc/nhc/roles/nhc"
CONTROL_HOST = {
    "nhc-console.service", "nhc-deep-sweep.service", "nhc-job.service", "nhc-notices.service", "nhc-remedy.service",
    "nhc-serve.service", "nhc-server.service",
}  # fmt: skip
"""What runs on one host of a site, not on every node; the role is for nodes."""
BY_HAND = {"nhc-gate-boot.service", "nhc-gate.service"}
"""What takes nodes out of service: installed where a site has written its gate.toml, never by a role's default."""
MANAGED = "# Ansible managed\n"


def rendered(template: Path) -> str:
    """A template as Ansible renders it with the role's defaults."""
    try:
        import jinja2
        import yaml
    except ImportError as error:
        need("ansible-core", False, str(error))
        raise
    jinja = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    jinja.filters["quote"] = shlex.quote
    values = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    return jinja.from_string(template.read_text()).render(ansible_managed="Ansible managed", **values)


@pytest.mark.parametrize("unit", ["nhc-agent.service", "nhc-check.service", "nhc-check.timer"])
def test_the_role_installs_the_unit_that_packages_install(unit: str) -> None:
    text = rendered(ROLE / "templates" / f"{unit}.j2")
    assert text.startswith(MANAGED)
    assert text[len(MANAGED) :] == (UNITS / unit).read_text()


def test_each_unit_has_its_template() -> None:
    templates = {path.name[: -len(".j2")] for path in (ROLE / "templates").glob("nhc-*.j2")}
    assert {path.name for path in UNITS.iterdir()} == templates | CONTROL_HOST | BY_HAND
