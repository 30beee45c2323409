"""The instance metadata service, version 2: what an EC2 instance knows of itself.

A hop limit of 1 on the instance hides it from pods without the host's network; EKS Auto Mode blocks it for them.
"""

from __future__ import annotations

from nhc.ports.adapter import AdapterError
from nhc_adapters.cloud.rest import Rest, plain_message
from nhc_adapters.repair.calls import CallFailed

ADDRESS = "http://169.254.169.254"
_LIFETIME = "60"


class Metadata:
    """One instance's own metadata; nothing is remembered."""

    def __init__(self, address: str, timeout: float) -> None:
        self._address = address
        self._rest = Rest(min(timeout, 5.0), plain_message)

    def get(self, path: str) -> str:
        """One value, as `instance-id`. Raises AdapterError."""
        about = "the instance metadata service"
        try:
            token = self._rest.call(
                about, "PUT", f"{self._address}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _LIFETIME}
            ).data.decode()
            where = f"{self._address}/latest/meta-data/{path}"
            return self._rest.call(about, "GET", where, {"X-aws-ec2-metadata-token": token}).data.decode().strip()
        except CallFailed as error:
            raise AdapterError(f"{error} (is this an EC2 instance? a pod may need the host's network)") from None
