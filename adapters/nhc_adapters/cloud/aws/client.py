"""AWS through botocore: each call is sent once; the error shows what its failure proves.

By default botocore repeats a call up to three times when an answer is lost; a repeated reboot call is a second reboot.
`total_max_attempts` of 1 means one request (`max_attempts` of 1 would mean two).

An EC2 instance reads its own data from the instance metadata service, version 2. A hop limit of 1 on the instance hides
it from pods without the host's network; EKS Auto Mode blocks it for them.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import botocore

from nhc import __version__
from nhc.core.settings import declared
from nhc.marks.ports.adapter import AdapterError, SettingError
from nhc.marks.ports.repair import Answer, Machine
from nhc_adapters.cloud.rest import Rest, plain_message
from nhc_adapters.repair import LATER, CallFailed, https_url

CONNECT_TIMEOUT = 5.0

PAGES = 100
"""Pages of one list at most: more than the nodes of the largest cluster; an answer that never ends is not read on."""

THROTTLED = frozenset(
    (
        "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
        "RequestThrottledException", "TooManyRequestsException", "LimitExceededException", "PriorRequestNotComplete",
        "EC2ThrottledException", "SlowDown",
    )
)  # fmt: skip
"""Codes that say "not now" before anything was begun, with any HTTP status: EC2 says RequestLimitExceeded with 503
(botocore.retries.standard lists the same).
"""

NOT_BEGUN = frozenset(
    (
        "ResourceContention", "ResourceContentionFault", "ScalingActivityInProgress", "ScalingActivityInProgressFault",
        "ConflictException", "InsufficientInstanceCapacity", "InsufficientCapacity", "IncorrectInstanceState",
        "ResourceInUse",
    )
)  # fmt: skip
"""Codes that say "not in this state" or "no capacity": nothing was begun, and later may be another matter. Auto Scaling
says ResourceContention with HTTP 500."""


DENIED = frozenset(("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedAccess"))
"""Codes of a call that the caller's policies do not allow."""

CREDENTIALS = frozenset(
    (
        "ExpiredToken", "ExpiredTokenException", "RequestExpired", "AuthFailure", "InvalidClientTokenId",
        "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature",
        "MissingAuthenticationToken", "RequestTimeTooSkewed",
    )
)  # fmt: skip
"""Codes of a call whose credentials or clock were not accepted (EC2 API reference, "Common client error codes"): they
tell nothing of the machine, and the credentials are renewed."""


@declared.settings
class AwsAccess(NamedTuple):
    """Which account, and how it is reached."""

    region: str = declared.text("region", "", "default: $AWS_REGION, the machine's own")
    endpoint: str = declared.converted("endpoint", https_url, "", "default: AWS's own")
    proxy: str = declared.text("proxy", "", "of all calls")
    profile: str = declared.text("profile", "", "of the credentials; default: as botocore finds them")


class Aws:
    """Clients of one account, by service and region, made when first asked for."""

    def __init__(self, own: AwsAccess, environ: Optional[Mapping[str, str]], timeout: float) -> None:
        self.region, self.endpoint, self.proxy, self.profile = own
        self.timeout = timeout
        self._environ = environ
        self._session: Any = None
        self._clients: Dict[Tuple[str, str], Any] = {}

    def call(self, service: str, operation: str, region: str = "", **parameters: object) -> Mapping[str, Any]:
        """One request, once; the answer. Raises CallFailed."""
        from botocore import exceptions, xform_name
        from botocore.parsers import ResponseParserError

        call = f"{service}:{operation}"
        try:
            client = self._client(service, region)
            method = getattr(client, xform_name(operation), None)
            if method is None:
                raise CallFailed(
                    Answer.REFUSED, f"{call}: botocore {botocore.__version__} does not know this call: upgrade it"
                )
            answer: Mapping[str, Any] = method(**parameters)
            return answer
        except exceptions.ClientError as error:
            raise _judged(call, error.response) from None
        except (
            exceptions.EndpointConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.ProxyConnectionError,
        ) as error:
            raise CallFailed(Answer.REFUSED, f"{call}: {_plain(error)}", retry_after=LATER) from None
        except (exceptions.HTTPClientError, exceptions.ReadTimeoutError) as error:  # lost after the request had left
            raise CallFailed(Answer.AMBIGUOUS, f"{call}: {_plain(error)}") from None
        except ResponseParserError:
            raise CallFailed(Answer.AMBIGUOUS, f"{call}: the answer makes no sense (a proxy's page?)") from None
        except exceptions.BotoCoreError as error:  # no credentials, no region, wrong parameters: nothing was sent
            raise CallFailed(Answer.REFUSED, f"{call}: {_plain(error)}", retry_after=LATER) from None

    def pages(
        self, service: str, operation: str, items: str, region: str = "", **parameters: object
    ) -> List[Mapping[str, Any]]:
        """What the pages of a list hold under `items`. Raises CallFailed, also where there are more than PAGES."""
        listed: List[Mapping[str, Any]] = []
        for _page in range(PAGES):
            answer = self.call(service, operation, region, **parameters)
            listed += answer.get(items) or []
            if not answer.get("NextToken"):
                return listed
            parameters["NextToken"] = answer["NextToken"]
        raise CallFailed(Answer.REFUSED, f"{service}:{operation}: more than {PAGES} pages")

    def known_region(self) -> str:
        """The region of the settings or the environment, "" if none is set."""
        return self.region or self._env("AWS_REGION") or self._env("AWS_DEFAULT_REGION")

    def _client(self, service: str, region: str) -> Any:
        where = self.region or region or self.known_region()
        made = self._clients.get((service, where))
        if made is None:
            from botocore.config import Config

            config = Config(
                connect_timeout=min(CONNECT_TIMEOUT, self.timeout),
                read_timeout=self.timeout,
                retries={"total_max_attempts": 1, "mode": "standard"},
                proxies={"http": self.proxy, "https": self.proxy} if self.proxy else None,
                user_agent_extra=f"nhc/{__version__}",
            )
            made = self._clients[service, where] = self._open().create_client(
                service, region_name=where or None, endpoint_url=self.endpoint or None, config=config, **self._given()
            )
        return made

    def _open(self) -> Any:
        if self._session is None:
            from botocore import exceptions
            from botocore.session import Session

            try:
                self._session = Session(profile=self.profile or None)
                self._session.register_component("data_loader", _loader())
                self._session.get_scoped_config()
            except exceptions.ProfileNotFound as error:
                raise SettingError("profile", str(error)) from None
        return self._session

    def _env(self, name: str) -> str:
        return (os.environ if self._environ is None else self._environ).get(name, "")

    def _given(self) -> Dict[str, str]:
        """Credentials of an environment that replaces the process's own; else botocore finds them as usual."""
        if self._environ is None or not self._env("AWS_ACCESS_KEY_ID"):
            return {}
        names = {
            "aws_access_key_id": "AWS_ACCESS_KEY_ID",
            "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
            "aws_session_token": "AWS_SESSION_TOKEN",
        }
        return {name: self._env(variable) for name, variable in names.items() if self._env(variable)}


@lru_cache(maxsize=1)
def _loader() -> Any:
    """The services' models, read once a process: EC2's takes half a second."""
    from botocore.loaders import create_loader

    return create_loader()


def _judged(call: str, response: Mapping[str, Any]) -> CallFailed:
    """What an error's answer proves. A 4xx was refused; a 5xx may come after the work was begun."""
    error: Mapping[str, Any] = response.get("Error") or {}
    meta: Mapping[str, Any] = response.get("ResponseMetadata") or {}
    code, status = str(error.get("Code") or ""), int(meta.get("HTTPStatusCode") or 0)
    message = f"{call}: {code or status}: {error.get('Message') or 'no reason given'}"
    if code in DENIED or (status == 403 and code not in CREDENTIALS | THROTTLED):
        return CallFailed(Answer.REFUSED, message, code, right=call)
    if code in THROTTLED | NOT_BEGUN | CREDENTIALS or status == 429:
        try:
            wait = float((meta.get("HTTPHeaders") or {}).get("retry-after") or LATER)
        except ValueError:
            wait = LATER
        return CallFailed(Answer.REFUSED, message, code, wait)
    return CallFailed(Answer.REFUSED if 400 <= status < 500 else Answer.AMBIGUOUS, message, code)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_INSTANCE = re.compile(r"(?:^|[/-])(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)$")
"""At the end of every form: `i-…` (Slurm's InstanceId), `aws:///us-east-1a/i-…`, and HyperPod's
`aws:///use1-az1/sagemaker/cluster/hyperpod-<cluster id>-i-…`, whose fields cannot be counted from the front."""

_ZONE = re.compile(r"^aws:///([a-z]{2,3}(?:-[a-z]+)+-\d)[a-z]/")
"""The region of a provider id's availability zone. HyperPod's has a zone id (use1-az1), which names none."""

_HYPERPOD = re.compile(r"/sagemaker/cluster/(?:hyperpod-)?([a-z0-9]{12})-i-[0-9a-f]+$")
_HYPERPOD_NAME = re.compile(r"^hyperpod-i-[0-9a-f]+$")


class AwsIdentity(NamedTuple):
    """`instance` is "" if the machine is not a known EC2 instance. `hyperpod` is the cluster's id or name."""

    instance: str
    region: str = ""
    hyperpod: str = ""
    in_hyperpod: bool = False


def identity(machine: Machine) -> AwsIdentity:
    """Who a machine is, from its provider id, its name and its settings (`instance`, `cluster`)."""
    given = machine.provider_id or machine.settings.get("instance", "")
    named = _HYPERPOD_NAME.match(machine.node)
    instance = _INSTANCE.search(given) or (_INSTANCE.search(machine.node) if named and not given else None)
    zone, cluster = _ZONE.match(given), _HYPERPOD.search(given)
    name = machine.settings.get("cluster", "")
    return AwsIdentity(
        instance=instance[1] if instance else "",
        region=zone[1] if zone else "",
        hyperpod=name or (cluster[1] if cluster else ""),
        in_hyperpod=bool(cluster or named or machine.settings.get("hyperpod") in ("yes", "true")),
    )


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
        """The region, "" if the settings or the environment name it. Raises AdapterError."""
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
