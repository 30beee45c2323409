"""A Redfish service on loopback, as DMTF DSP0266 describes one: sessions, one system, its resets, tasks and logs.

Every request is looked at as a controller does: no token, 401; a kind of reset that is not offered, 400; a method that
a resource has not, 405. `sushy-emulator` is the second opinion on what it answers (tests/adapters/test_redfish.py).
"""

from __future__ import annotations

import base64
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
ACCOUNTS = "/redfish/v1/AccountService"
LOG = f"{SYSTEM}/LogServices/Sel"


class Controller:
    """The machine and its controller. `next` is what happens to the next reset: lost, error, busy, stuck or nothing."""

    def __init__(self, kinds=("On", "ForceOff", "ForceRestart", "PowerCycle"), sessions=True, tasks=False):
        self.uuid = "564d2f6c-1111-2222-3333-444455556666"
        self.user, self.password = "nhc", "correct horse"
        self.kinds, self.has_sessions, self.tasks = kinds, sessions, tasks
        self.power, self.resets, self.pending, self.role = "On", 0, "", "Administrator"
        self.task_state, self.next, self.shows_reset = "Running", "", True
        self.calls, self.tokens, self.opened, self.elsewhere = [], set(), 0, ""
        self.own_name = ""
        """The host that it writes in front of the addresses of what it makes, such as https://bmc.factory."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"bmc": self}))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def take_effect(self):
        kind, self.pending = self.pending, ""
        if kind in ("ForceOff",):
            self.power = "Off"
        elif kind:
            self.power = "On"
            self.resets += kind != "On"
        self.task_state = "Completed"

    def resource(self, path):
        """The resource at a path, None where there is none."""
        system = {
            "@odata.id": SYSTEM, "Id": "1", "UUID": self.uuid, "PowerState": self.power, "SerialNumber": "S1",
            "LogServices": {"@odata.id": f"{SYSTEM}/LogServices"},
            "Actions": {"#ComputerSystem.Reset": {
                "target": self.elsewhere or RESET, "ResetType@Redfish.AllowableValues": list(self.kinds)}},
        }  # fmt: skip
        if self.shows_reset:
            system["LastResetTime"] = f"2026-11-22T08:{self.resets:02}:00Z"
        entries = [
            {"Created": "2026-11-22T08:00:00Z", "Severity": "Critical", "Message": f"PCIe fatal error {n}"}
            for n in range(40)
        ]
        return {
            "/redfish/v1/": {"Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},
                             "Systems": {"@odata.id": "/redfish/v1/Systems"}},
            "/redfish/v1/Systems": {"Members": [{"@odata.id": SYSTEM}]},
            SYSTEM: system,
            f"{SYSTEM}/LogServices": {"Members": [{"@odata.id": LOG}]},
            f"{LOG}/Entries": {"Members": entries},
            "/redfish/v1/TaskService/Tasks/7": {"TaskState": self.task_state},
            f"{ACCOUNTS}/Accounts": {"Members": [{"@odata.id": f"{ACCOUNTS}/Accounts/2"}]},
            f"{ACCOUNTS}/Accounts/2": {
                "UserName": self.user, "Links": {"Role": {"@odata.id": f"{ACCOUNTS}/Roles/R"}}},
            f"{ACCOUNTS}/Roles/R": {
                "AssignedPrivileges": ["Login", "ConfigureComponents"] if self.role == "Administrator" else ["Login"]},
        }.get(path.rstrip("/") if path != "/redfish/v1/" else path)  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head
    bmc: Controller

    def log_message(self, *_args):
        """Quiet."""

    def answer(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, **headers):
        body = {
            "error": {
                "code": "Base.1.0.GeneralError",
                "message": message,
                "@Message.ExtendedInfo": [{"Message": message}],
            }
        }
        self.answer(status, body, **headers)

    def known(self):
        basic = base64.b64encode(f"{self.bmc.user}:{self.bmc.password}".encode()).decode()
        return (
            self.headers.get("X-Auth-Token") in self.bmc.tokens or self.headers.get("Authorization") == f"Basic {basic}"
        )

    def do_GET(self):
        if self.path != "/redfish/v1/" and not self.known():
            return self.refuse(401, "no session")
        found = self.bmc.resource(self.path)
        return self.refuse(404, "no such resource") if found is None else self.answer(200, found)

    def do_DELETE(self):
        self.bmc.tokens.discard(self.headers.get("X-Auth-Token"))
        self.bmc.opened -= 1
        self.answer(204)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/redfish/v1/SessionService/Sessions":
            return self.log_in(body)
        if not self.known():
            return self.refuse(401, "no session")
        if self.path != RESET:
            return self.refuse(405, "not here")
        if body.get("ResetType") not in self.bmc.kinds:
            return self.refuse(400, f"{body.get('ResetType')} is not in the list of acceptable values")
        return self.reset(body["ResetType"])

    def log_in(self, body):
        if not self.bmc.has_sessions:
            return self.refuse(404, "no session service")
        if (body["UserName"], body["Password"]) != (self.bmc.user, self.bmc.password):
            return self.refuse(401, "wrong user or password")
        token = uuid.uuid4().hex
        self.bmc.tokens.add(token)
        self.bmc.opened += 1
        where = f"{self.bmc.own_name}/redfish/v1/SessionService/Sessions/{token[:4]}"
        return self.answer(201, {}, X_Auth_Token=token, Location=where)

    def reset(self, kind):
        if self.bmc.role != "Administrator":
            return self.refuse(403, "insufficient privilege")
        self.bmc.calls.append(kind)
        fault, self.bmc.next = self.bmc.next, ""
        if fault == "error":
            return self.refuse(500, "internal error")
        if fault == "busy":
            return self.refuse(503, "service temporarily unavailable", Retry_After="30")
        self.bmc.pending, self.bmc.task_state = kind, "Running"
        if fault == "lost":
            self.close_connection = True
            return self.connection.close()
        if self.bmc.tasks:
            return self.answer(
                202, {"TaskState": "Running"}, Location=f"{self.bmc.own_name}/redfish/v1/TaskService/Tasks/7"
            )
        return self.answer(204)
