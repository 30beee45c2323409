"""The instance metadata service, version 2: what an EC2 instance knows of itself.

A hop limit of 1 on the instance hides it from pods without the host's network; EKS Auto Mode blocks it for them.
"""

from __future__ import annotations

from typing import NamedTuple

from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError
from nhc_adapters.cloud.aws.client import Aws
from nhc_adapters.cloud.rest import Rest, plain_message
from nhc_adapters.repair.calls import CallFailed
from nhc_adapters.repair.setting_forms import https_url

ADDRESS = "http://169.254.169.254"
_LIFETIME = "60"


@declared.settings
class InstanceSettings(NamedTuple):
    """Which instance the program runs on."""

    metadata: str = declared.converted("metadata", https_url, ADDRESS, "the instance metadata service")
    instance: str = declared.text("instance", "", "its id; default: what the metadata service says")


class OwnInstance:
    """The instance that the program runs on: its id and its region, asked for once where the settings do not say."""

    def __init__(self, own: InstanceSettings, aws: Aws, timeout: float) -> None:
        self._address, self._aws = own.metadata, aws
        self._rest = Rest(min(timeout, 5.0), plain_message)
        self._id, self._region = own.instance, ""

    def id(self) -> str:
        """Raises AdapterError."""
        self._id = self._id or self._get("instance-id")
        return self._id

    def region(self) -> str:
        """The region, "" where the settings or the environment name it. Raises AdapterError."""
        if not self._region and not self._aws.known_region():
            self._region = self._get("placement/region")
        return self._region

    def _get(self, path: str) -> str:
        about = "the instance metadata service"
        try:
            token = self._rest.call(
                about, "PUT", f"{self._address}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _LIFETIME}
            ).data.decode()
            where = f"{self._address}/latest/meta-data/{path}"
            return self._rest.call(about, "GET", where, {"X-aws-ec2-metadata-token": token}).data.decode().strip()
        except CallFailed as error:
            raise AdapterError(f"{error} (is this an EC2 instance? a pod may need the host's network)") from None
