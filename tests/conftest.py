"""What every test shares: no core files from the crashes that tests provoke, and how hard hypothesis tries."""

import resource

from hypothesis import HealthCheck, settings

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def pytest_collection_modifyitems(items):
    """Tests on the Kubernetes control plane come last: on a fresh machine it is still being built."""
    items.sort(key=lambda item: "kubernetes" in item.nodeid or "kube" in getattr(item, "fixturenames", ()))


# Fifty examples find what this project's parsers get wrong; a busy machine is no failure.
settings.register_profile("nhc", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nhc")
