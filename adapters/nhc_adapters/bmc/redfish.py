"""Resets and power cycles by Redfish.

    [repairers.redfish]
    bmc = "https://{node}-bmc.cluster"
    user = "nhc"
    password-file = "/etc/nhc/bmc.password"
    ca-file = "/etc/nhc/bmc-ca.pem"     # or fingerprint = "AB:CD:…", or verify = "no"

nhc asks a controller for the resets that it offers before it sends one. ForceRestart does not cut the power; PowerCycle
does. If PowerCycle is not offered, nhc switches the power off, checks that it is off, and switches it on.
"""

from __future__ import annotations

import base64
import json
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type
from urllib.parse import urljoin, urlsplit

from nhc.core.json_values import object_from, object_of, objects_of, parse_object, text_of, texts_of
from nhc.core.model import printable
from nhc.core.settings import declared
from nhc.core.settings.settings_file import Table
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import CertificateRefused, HttpAnswer, HttpClient, HttpError, NotSent, Tls
from nhc.marks.ports.adapter import AdapterError
from nhc.marks.ports.part_settings import Given, read
from nhc.marks.ports.repair import (
    Answer,
    EvidenceBudget,
    Exhibit,
    Machine,
    Order,
    Progress,
    Right,
    Rung,
    Sent,
    Sighting,
    Stage,
)
from nhc_adapters.bmc.access import BmcAccess, differs, forms
from nhc_adapters.repair import (
    LATER,
    CallFailed,
    EvidenceCollector,
    RepairRefused,
    accepted,
    https_url,
    send_once,
    untouched,
)

# One session with a Redfish service: log in, ask, change once, log out.
#
# Controllers allow few sessions at a time, so each is deleted at its end. Sources: DMTF DSP0266 (the protocol),
# sections "Sessions" and "Asynchronous operations".


BODY_LIMIT = 8 << 20
"""Bytes of one answer at most; a log's page has some hundred kilobytes."""

NOT_BEGUN = frozenset({400, 401, 403, 404, 405, 406, 409, 410, 412, 415, 501})
"""Statuses of a request that was looked at and not carried out (DSP0266, "Status codes")."""


class RedfishReply(NamedTuple):
    """An answer: status, headers in lower case, and the JSON object, {} for none."""

    status: int
    headers: Mapping[str, str]
    body: Dict[str, object]

    @property
    def location(self) -> str:
        """The path of the Location header, "" for none. A controller may write it with a host name that it has only
        for itself; what it made is asked for where we reached it, so that no other host is given our token.
        """
        address = urlsplit(self.headers.get("location", ""))
        return address._replace(scheme="", netloc="").geturl()


class RedfishSession:
    """Use it as a context manager. Raises CallFailed for every error, AdapterError included."""

    def __init__(self, base: str, user: str, password: str, tls: Tls, timeout: float) -> None:
        self.base, self.user, self._password = base.rstrip("/"), user, password
        self._headers = {"Accept": "application/json", "OData-Version": "4.0"}
        self._session = ""
        self._http, self._timeout = HttpClient(tls, keep=True), timeout

    def __enter__(self) -> RedfishSession:  # noqa: PYI034 (Self is Python 3.11's)
        try:
            self._log_in()
        except BaseException:
            self._http.close()
            raise
        return self

    def _log_in(self) -> None:
        root = self.get("/redfish/v1/")
        if not self.user:
            return
        where = link(root, "Links", "Sessions") or "/redfish/v1/SessionService/Sessions"
        try:
            reply = self.change("POST", where, {"UserName": self.user, "Password": self._password})
        except CallFailed as error:
            if error.code not in ("404", "405", "501"):
                raise
            # Services without sessions take the password with each request (DSP0266, "HTTP basic authentication").
            login = base64.b64encode(f"{self.user}:{self._password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
            return
        self._headers["X-Auth-Token"] = reply.headers.get("x-auth-token", "")
        self._session = reply.location

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._session:
            try:
                self.change("DELETE", self._session)
            except CallFailed:
                pass  # it ends by its own time-out; what was asked for is done
        self._http.close()

    def get(self, path: str) -> Dict[str, object]:
        """One resource."""
        return self._request("GET", path).body

    def members(self, path: str) -> List[str]:
        """The addresses in a collection's first page."""
        return [str(row["@odata.id"]) for row in objects_of(self.get(path).get("Members")) if "@odata.id" in row]

    def change(self, method: str, path: str, body: Optional[Mapping[str, object]] = None) -> RedfishReply:
        """One request that changes something, sent once."""
        return self._request(method, path, body)

    def _request(self, method: str, path: str, body: Optional[Mapping[str, object]] = None) -> RedfishReply:
        url = urljoin(f"{self.base}/", path)
        if not url.startswith(f"{self.base}/"):  # another host would be given our token
            raise CallFailed(Answer.REFUSED, f"{self.base}: points to another place: {printable(url, 120)}")
        headers = dict(self._headers)
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            with Exchange(self._timeout) as exchange:
                reply = self._http.send(exchange, method, url, data, headers, limit=BODY_LIMIT)
        except CertificateRefused as error:
            raise CallFailed(Answer.REFUSED, f"{self.base}: {printable(str(error), 200)}") from None
        except NotSent as error:
            raise CallFailed(Answer.REFUSED, f"{self.base}: {printable(str(error), 200)}", retry_after=LATER) from None
        except HttpError as error:
            why = f"{self.base}: no answer to {method}: {printable(str(error), 200)}"
            raise CallFailed(Answer.AMBIGUOUS, why) from None
        if reply.status >= 300:
            raise _failed(self.base, method, path, reply)
        return RedfishReply(reply.status, reply.headers, self._json(reply.data, path))

    def _json(self, content: bytes, path: str) -> Dict[str, object]:
        if not content.strip():
            return {}
        try:
            return parse_object(content)
        except ValueError:
            raise CallFailed(
                Answer.AMBIGUOUS, f"{self.base}{printable(path, 80)}: the answer is no JSON object"
            ) from None


def _failed(base: str, method: str, path: str, reply: HttpAnswer) -> CallFailed:
    reason, status = printable(_error_message(reply.data), 200), reply.status
    message = f"{base}: {method} {printable(path, 100)}: HTTP {status}{f': {reason}' if reason else ''}"
    if status == 429 or (status == 503 and "retry-after" in reply.headers):
        return CallFailed(Answer.REFUSED, message, str(status), reply.retry_after or LATER)
    right = "ConfigureComponents" if status == 403 else "the login" if status == 401 else ""
    return CallFailed(Answer.REFUSED if status in NOT_BEGUN else Answer.AMBIGUOUS, message, str(status), right=right)


def _error_message(content: bytes) -> str:
    """The message of an error's body (DSP0266, "Error responses"), its text where it is none."""
    value = object_from(content)
    if "error" not in value:
        return content[:200].decode("utf-8", "replace")
    error = object_of(value["error"])
    more = error.get("@Message.ExtendedInfo")
    first = next(iter(objects_of(more)), object_of(more))
    return text_of(first.get("Message")) or text_of(error.get("message"))


def link(value: Mapping[str, object], *names: str) -> str:
    """The address found under these names, "" for none."""
    at: object = value
    for name in names:
        at = object_of(at).get(name)
    return text_of(object_of(at).get("@odata.id"))


def text_field(value: Mapping[str, object], name: str) -> str:
    """A text field, "" if it is missing or of another kind."""
    return text_of(value.get(name))


@declared.settings
class RedfishSettings(NamedTuple):
    """The table of a repairer of this kind."""

    access: BmcAccess = declared.part("", BmcAccess)
    ca_file: str = declared.text("ca-file", "", "the authority that signs the controllers' certificates")
    fingerprint: str = declared.text("fingerprint", "", "of the certificate of all controllers (SHA-256)")
    verify: bool = declared.flag("verify", True, "false: any certificate is believed")
    doctor: str = declared.text("doctor", "", "a controller at which `nhc doctor remedy` tries the rights")

    def checked(self, table: Table) -> RedfishSettings:
        """The same. Raises SettingsError for an address that is not https."""
        try:
            if self.access.bmc:
                https_url(self.access.bmc)
        except ValueError as error:
            raise table.error("bmc", str(error)) from None
        return self


RESET_TYPES: Dict[Rung, Tuple[str, ...]] = {
    Rung.REBOOT: ("ForceRestart", "GracefulRestart"),
    Rung.POWER_CYCLE: ("PowerCycle", "ForceOff"),
}
"""The kinds of reset for a rung, the best first (DMTF Resource.v1: ResetType). A forced restart goes before a graceful
one: a node whose system still answers is rebooted by its scheduler, not by its controller."""

NOT_IMPLEMENTED = ("400", "405", "501")
"""Statuses by which a controller refuses a kind of reset that its own list has."""


class ComputerSystem(NamedTuple):
    """A computer system as its controller shows it."""

    path: str
    uuid: str
    power: str
    last_reset: str
    target: str
    kinds: Tuple[str, ...]
    logs: Tuple[str, ...]


class Redfish:
    """Repairs machines by their management controllers."""

    SETTINGS = RedfishSettings

    def __init__(self, settings: Given = None, environ: Given = None, timeout: float = 30.0) -> None:
        own = read(RedfishSettings, settings)
        self.access, self.doctor = own.access, own.doctor
        self.tls = Tls(own.ca_file, fingerprint=own.fingerprint, verify=own.verify)
        self.timeout = timeout

    def can(self, machine: Machine, rung: Rung, device: str = "") -> str:
        """Why this rung is not possible, "" if it is. Sends no request: `send` asks what the controller offers."""
        if rung not in RESET_TYPES:
            return f"Redfish has no {rung.value}"
        if not self.access.address(machine):
            return self.access.unknown(machine)
        return "" if forms(machine.uuid) else differs(machine, "", "the controller")

    def _session(self, address: str) -> RedfishSession:
        if not address.startswith(("https://", "http://127.", "http://[::1]", "http://localhost")):
            raise AdapterError(f"{printable(address, 80)}: a controller's address begins with https://")
        return RedfishSession(address, self.access.user, self.access.password(), self.tls, self.timeout)

    # Looking.

    def look(self, machine: Machine) -> Sighting:
        """The system's UUID, power state and last reset. Raises AdapterError."""
        with self._session(self._address(machine)) as session:
            system = self._system(session, machine)
        return Sighting(time.time(), system.uuid.lower(), system.last_reset, system.power)

    def _address(self, machine: Machine) -> str:
        address = self.access.address(machine)
        if not address:
            raise AdapterError(self.access.unknown(machine))
        return address

    def _system(self, session: RedfishSession, machine: Machine) -> ComputerSystem:
        """The machine's own system where a chassis holds several, else the only one. Raises AdapterError."""
        paths = session.members("/redfish/v1/Systems")
        systems = [_read_system(path, session.get(path)) for path in paths[:64]]
        own = [system for system in systems if forms(system.uuid) & forms(machine.uuid)]
        if not own and len(systems) != 1:
            why = f"none of its {len(systems)} systems is {machine.node}'s, by their UUIDs"
            raise RepairRefused(f"{session.base}: {why}")
        return (own or systems)[0]

    # Sending.

    def send(self, order: Order) -> Sent:
        """One reset, once. Never raises."""
        why = self.can(order.machine, order.rung)
        if why:
            return Sent(Answer.REFUSED, f"not sent: {why}")
        return self._send(order.machine, RESET_TYPES[order.rung])

    def complete(self, order: Order, sent: Sent) -> Sent:
        """Switch the power on again. Never raises."""
        return self._send(order.machine, ("On", "ForceOn"))

    def _send(self, machine: Machine, kinds: Sequence[str]) -> Sent:
        stack = ExitStack()

        def prepare() -> Tuple[RedfishSession, ComputerSystem, List[str]]:
            session = stack.enter_context(self._session(self._address(machine)))
            system = self._system(session, machine)
            other = differs(machine, system.uuid, session.base)
            if other:
                raise RepairRefused(other)
            offered = self._offered(session, system)
            fit = [kind for kind in kinds if kind in offered]
            if not system.target or not fit:
                raise RepairRefused(
                    f"{session.base} offers none of {', '.join(kinds)}: {', '.join(offered) or 'no reset'}"
                )
            return session, system, fit

        def act(target: Tuple[RedfishSession, ComputerSystem, List[str]]) -> Sent:
            session, system, fit = target
            for kind in fit:
                try:
                    reply = session.change("POST", system.target, {"ResetType": kind})
                except CallFailed as error:
                    if error.code in NOT_IMPLEMENTED and kind is not fit[-1]:
                        continue  # offered, and then not implemented: the next kind was not begun by this one
                    raise
                task = reply.location if reply.status == 202 else ""
                return accepted(f"{session.base} has taken {kind}", f"{kind} {task}".strip())
            raise AssertionError("prepare hands on one kind at least")

        with stack:
            return send_once(prepare, act)

    def _offered(self, session: RedfishSession, system: ComputerSystem) -> Tuple[str, ...]:
        """What the controller takes; a service that does not say is assumed to take everything of the standard."""
        if system.kinds and system.kinds[0].startswith("/"):
            for parameter in objects_of(session.get(system.kinds[0]).get("Parameters")):
                if parameter.get("Name") == "ResetType":
                    return tuple(texts_of(parameter.get("AllowableValues")))
        return system.kinds or ("ForceRestart", "ForceOff", "On")

    # Watching.

    def progress(self, order: Order, sent: Sent, before: Sighting) -> Progress:
        """What the power, the last reset and the task show. Raises AdapterError."""
        kind, _, task = sent.request_id.partition(" ")
        with self._session(self._address(order.machine)) as session:
            system = self._system(session, order.machine)
            state = session.get(task) if task else {}
        if text_field(state, "TaskState") in ("Exception", "Killed", "Cancelled"):
            return Progress(Stage.FAILED, f"the controller's task ended as {text_field(state, 'TaskState')}")
        if order.rung is Rung.POWER_CYCLE and system.power == "Off" and kind != "PowerCycle":
            return Progress(Stage.HALFWAY, "power is off; it is to be switched on")
        if system.power == "On" and kind in ("On", "ForceOn"):
            return Progress(Stage.DONE, "power was off and is on again")
        if system.power == "On" and system.last_reset and before.boot and system.last_reset != before.boot:
            return Progress(Stage.DONE, f"reset at {printable(system.last_reset, 40)}, power is on")
        power = f"power is {printable(system.power, 20)}"
        if before.boot and (system.power, system.last_reset) == (before.power, before.boot):
            return untouched(sent, before, f"{power}, and the last reset is the one of before")
        return Progress(Stage.WORKING, power)

    # Rights, evidence.

    def rights(self) -> Sequence[Right]:
        """Whether the user may reset, tried on the controller that `doctor` names. Raises AdapterError."""
        if not self.doctor:
            return [Right("ComputerSystem.Reset", None, "no controller to try it on: set doctor to the address of one")]
        with self._session(self.doctor) as session:
            session.members("/redfish/v1/Systems")
            privileges = self._privileges(session)
        if privileges is None:
            return [Right("ComputerSystem.Reset", None, f"{session.base} answers; it does not show the user's role")]
        granted = "ConfigureComponents" in privileges  # DMTF's PrivilegeRegistry: ComputerSystem, POST
        return [
            Right("ComputerSystem.Reset", granted, f"{self.access.user} has {', '.join(privileges) or 'no privilege'}")
        ]

    def _privileges(self, session: RedfishSession) -> Optional[Tuple[str, ...]]:
        try:
            for path in session.members("/redfish/v1/AccountService/Accounts"):
                account = session.get(path)
                if text_field(account, "UserName") == self.access.user:
                    role = link(account, "Links", "Role")
                    assigned = session.get(role).get("AssignedPrivileges") if role else None
                    return tuple(texts_of(assigned)) if isinstance(assigned, list) else None
        except AdapterError:
            pass  # a user that may reset need not be able to read accounts
        return None

    def evidence(self, machine: Machine, budget: EvidenceBudget) -> Iterator[Exhibit]:
        """The entries of the system's logs. Raises AdapterError."""
        pieces = EvidenceCollector(budget)
        with self._session(self._address(machine)) as session:
            system = self._system(session, machine)
            for log in system.logs:
                for path in session.members(log):
                    if pieces.spent():
                        return
                    entries = objects_of(session.get(f"{path}/Entries").get("Members"))
                    lines = [
                        f"{text_field(entry, 'Created')} {text_field(entry, 'Severity')}"
                        f" {printable(text_field(entry, 'Message'), 1000)}"
                        for entry in entries
                    ]
                    name = "".join(c if c.isalnum() else "-" for c in path.rpartition("/")[2])
                    yield from pieces.take(f"bmc-log-{name}.txt", "text/plain", "\n".join([*lines, ""]).encode())


def _read_system(path: str, value: Mapping[str, object]) -> ComputerSystem:
    reset = object_of(object_of(value.get("Actions")).get("#ComputerSystem.Reset"))
    kinds = tuple(texts_of(reset.get("ResetType@Redfish.AllowableValues")))
    info = text_field(reset, "@Redfish.ActionInfo")
    if not kinds and info:
        kinds = (info,)
    logs = link(value, "LogServices")
    return ComputerSystem(
        path, text_field(value, "UUID"), text_field(value, "PowerState"), text_field(value, "LastResetTime"),
        text_field(reset, "target"),
        kinds, (logs,) if logs else (),
    )  # fmt: skip
