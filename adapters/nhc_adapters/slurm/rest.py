"""Slurm through slurmrestd, over TCP or a local socket: for machines without Slurm commands and munge key.

    NHC_SLURMREST             http://host:6820, https://..., or unix:/path/to/socket
    NHC_SLURMREST_TOKEN_FILE  the JWT (`scontrol token`); else $SLURM_JWT. None for rest_auth/local on a socket.
    NHC_SLURMREST_USER        the user the token is for (default: the one it names)

The newest API version that slurmrestd offers and this module knows is used. 22.05 offers v0.0.38 alone, which reads
nodes and cannot change them: use scontrol there. From v0.0.39 on the name in an update's path is a host list, so one
request drains any number of nodes (`_update_node` in openapi/v0.0.39/nodes.c).
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit

from nhc.core.json_values import object_from, object_of, parse_object, text_of
from nhc.core.model import printable
from nhc.core.system.bounded_read import read_bytes
from nhc.core.system.exchange import Exchange
from nhc.core.system.http_client import HttpClient, HttpError
from nhc.marks.ports.adapter import AdapterError, NodeState
from nhc_adapters._command import Failures, Hosts, chunks, understood
from nhc_adapters.slurm.marker import SlurmMarker, Work, json_hosts, parse_json_jobs
from nhc_adapters.slurm.states import parse_json_nodes

if TYPE_CHECKING:
    from nhc.marks.ports.job_control import WorkList

LARGEST = 1 << 30
"""Bytes of an answer: the nodes of the largest clusters."""
KNOWN = range(38, 45)
"""API versions (v0.0.N) whose answers `_slurm_states` reads: Slurm 22.05 to 25.11."""
WRITES_SINCE = 39
PATH_LIMIT = 4000
"""Characters of a host list in a path: slurmrestd's parser takes a request line of 8 KB."""


class SlurmRest(SlurmMarker):
    """Slurm through slurmrestd."""

    def _prepare(self) -> None:
        super()._prepare()
        url = self.command.setting("NHC_SLURMREST") or self.environ.get("NHC_SLURMREST", "")
        if not url:
            raise AdapterError("slurm-rest: NHC_SLURMREST is not set (http://host:6820 or unix:/path/to/socket)")
        self.url = urlsplit(url)
        if self.url.scheme not in ("http", "https", "unix") or not (self.url.hostname or self.url.path):
            raise AdapterError(f"slurm-rest: {url!r} is not an address (http://host:6820 or unix:/path/to/socket)")
        self._versions: Optional[Tuple[int, int]] = None

    def _token(self) -> str:
        """The JWT, read again for every request, because another program renews the file."""
        path = self.command.setting("NHC_SLURMREST_TOKEN_FILE")
        if not path:
            return self.environ.get("SLURM_JWT", "")
        try:
            return read_bytes(path, 1 << 20).decode("ascii").strip().rpartition("SLURM_JWT=")[2]
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"slurm-rest: {path}: {getattr(error, 'strerror', None) or error}") from None

    def request(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Any:
        """One request, its JSON answer. Raises AdapterError with what slurmrestd said."""
        headers = {"Accept": "application/json"}
        token = self._token()
        user = self.command.setting("NHC_SLURMREST_USER") or _user_of(token)
        if token:
            headers["X-SLURM-USER-TOKEN"] = token
        if user:
            headers["X-SLURM-USER-NAME"] = user
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.command.count()
        where = f"slurmrestd at {self.url.netloc or self.url.path}"
        local = self.url.path if self.url.scheme == "unix" else ""
        url = f"http://localhost{path}" if local else f"{self.url.scheme}://{self.url.netloc}{path}"
        content = None if body is None else json.dumps(body).encode()
        try:
            with Exchange(self.command.timeout) as exchange:
                answer = HttpClient(unix=local).send(exchange, method, url, content, headers, limit=LARGEST)
        except HttpError as error:
            raise AdapterError(f"{where}: {printable(str(error), 200)}") from None
        data = answer.data
        try:
            value: Optional[Dict[str, Any]] = parse_object(data.decode(errors="replace"))
        except ValueError:
            value = None
        listed = object_of(value).get("errors")
        errors = [_error(entry) for entry in (listed if isinstance(listed, list) else [listed]) if entry]
        if answer.status >= 400 or errors:
            why = "; ".join(errors) or printable(data[:200].decode(errors="replace")) or "no reason given"
            raise AdapterError(f"{where}: {answer.status} {why}")
        if value is None:
            raise AdapterError(f"{where}: {answer.status}, and no JSON object")
        return value

    def versions(self) -> Tuple[int, int]:
        """The newest API versions to read and to change nodes with, 0 for none. Raises AdapterError."""
        if self._versions is None:
            paths = self.request("GET", "/openapi/v3").get("paths", {})
            read = write = 0
            for path, methods in paths.items() if isinstance(paths, dict) else ():
                match = re.fullmatch(r"/slurm/v0\.0\.(\d+)/node/\{node_name\}", path)
                number = int(match[1]) if match else 0
                if number in KNOWN:
                    read = max(read, number if isinstance(methods, dict) and "get" in methods else 0)
                    write = max(write, number if isinstance(methods, dict) and "post" in methods else 0)
            if not read:
                raise AdapterError(f"slurmrestd offers none of the API versions v0.0.{KNOWN[0]} to v0.0.{KNOWN[-1]}")
            self._versions = (read, write)
        return self._versions

    def _states_of(self, names: Optional[Sequence[str]]) -> List[NodeState]:
        prefix = f"/slurm/v0.0.{self.versions()[0]}"
        try:
            if names is not None and len(names) == 1:
                node = self.request("GET", f"{prefix}/node/{quote(names[0], safe='')}")
                states = understood("slurmrestd's", parse_json_nodes, node)
                # slurmctld counts the processors in use only where all nodes are asked for: one that is asked for by
                # itself stays MIXED after its job (_slurm_rpc_dump_node_single, src/slurmctld/proc_req.c).
                if self.in_hook or not any("MIXED" in state.flags for state in states):
                    return states
            return understood("slurmrestd's", parse_json_nodes, self.request("GET", f"{prefix}/nodes"))
        except AdapterError as error:
            if names is not None and re.search(r"invalid node name|failure to query node|not found", str(error), re.I):
                return []
            raise

    def _read_hosts(self) -> Hosts:
        nodes = self.request("GET", f"/slurm/v0.0.{self.versions()[0]}/nodes")
        return understood("slurmrestd's", json_hosts, nodes)

    def work_on(self, node: str) -> WorkList:
        """The jobs on a node that the token's user may see; as `nhc.marks.ports.job_control.ListsWork`."""
        from nhc.marks.ports import job_control  # not on the path of a hook
        from nhc_adapters.slurm.job_states import parse_json_node_jobs

        return job_control.WorkList(tuple(understood("slurmrestd's", parse_json_node_jobs, self._jobs(), node)))

    def _work(self) -> Work:
        return understood("slurmrestd's", parse_json_jobs, self._jobs())

    def _jobs(self) -> Any:
        return self.request("GET", f"/slurm/v0.0.{self.versions()[0]}/jobs")

    def _update(self, nodes: Sequence[str], state: str, reason: str) -> Failures:
        version = self.versions()[1]
        if version < WRITES_SINCE:
            raise AdapterError(
                f"this slurmrestd reads nodes (v0.0.{self.versions()[0]}) and cannot change them before v0.0.39 "
                f"(Slurm 23.02): use scontrol"
            )
        body: Dict[str, Any] = {**({"state": [state]} if state else {}), **({"reason": reason} if reason else {})}
        failures: Failures = {}
        for some, folded in chunks(nodes, PATH_LIMIT):
            try:
                self.request("POST", f"/slurm/v0.0.{version}/node/{quote(folded, safe='')}", body)
            except AdapterError as error:
                failures.update(dict.fromkeys(some, str(error)))
        return failures


def _user_of(token: str) -> str:
    """The user that a JWT of Slurm's is for (its claim `sun`): slurmrestd of 22.05 requires it; "" for none."""
    parts = token.split(".")
    try:
        return text_of(object_from(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).get("sun"))
    except (IndexError, ValueError):
        return ""


def _error(error: object) -> str:
    """One entry of `errors`, whose fields differ between versions."""
    if not isinstance(error, dict):
        return printable(str(error))
    texts = [str(error[key]) for key in ("error", "description") if error.get(key)]
    return printable(": ".join(texts) or str(error))
