"""The parts of a site's job loop put together from its settings: the store and the job controllers."""

from __future__ import annotations

import os
from typing import Dict

from nhc.jobs.settings import JobControllerSettings, RestartSettings
from nhc.marks import plugins
from nhc.marks.ports.job_control import JobController
from nhc.store.database import Store
from nhc.store.settings import fleet_store, store_to_read


class JobSite:
    """What a site's settings name. Close it at the end."""

    def __init__(self, settings: RestartSettings, store: Store, controllers: Dict[str, JobController]) -> None:
        self.settings, self.store, self.controllers = settings, store, controllers

    def close(self) -> None:
        """End its connections."""
        self.store.close()


def open_site(settings: RestartSettings, *, look: bool = False) -> JobSite:
    """`look`: nothing is changed, and no store is made. Raises StoreError, NoAdapter, AdapterError."""
    made = {controller.name: open_controller(controller) for controller in settings.controllers}
    store = store_to_read(settings.store) if look else fleet_store(settings.store)
    return JobSite(settings, store, made)


def open_controller(settings: JobControllerSettings) -> JobController:
    """One job controller. Raises NoAdapter, AdapterError."""
    return plugins.job_controller(settings.type)(settings.settings, os.environ, settings.timeout)
