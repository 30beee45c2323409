"""The Jobs that carry out orders on their nodes: each is created once, and is found again by the order's key."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from nhc.ports.repair import Order
from nhc_adapters.kubernetes.repair import jobs
from nhc_adapters.kubernetes.repair.cluster import RepairCluster
from nhc_adapters.kubernetes.repair.jobs import HandSettings, JobSeen, job_name
from nhc_adapters.kubernetes.repair.pinned_job import JobPlace


class OrderJobs(NamedTuple):
    """Where they are, and how their program works."""

    cluster: RepairCluster
    place: JobPlace
    hand: HandSettings

    def create(self, order: Order, args: Sequence[str], restore: bool = False) -> bool:
        """Whether it was created now; else the same order was sent before. Raises CallFailed."""
        body = jobs.manifest(order, self.place, self.hand, args, restore)
        return self.cluster.create_once(body, (jobs.ORDER, order.key))[1]

    def seen(self, order: Order, restore: bool = False) -> Optional[JobSeen]:
        """The Job of an order and its pods, None where it is not there. Raises CallFailed."""
        name = job_name(order.key, restore)
        job = self.cluster.job(self.place.namespace, name)
        return None if job is None else jobs.read_job(job, self.cluster.pods_of(self.place.namespace, name))
