"""A fake slurmrestd: the nodes' part of the API, without a job, from v0.0.39 on, in the shapes that its parsers print.

A node's update takes a host list as its name, as `openapi/v0.0.39/nodes.c` passes it on to slurmctld.
"""

from __future__ import annotations

import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, List, Sequence
from urllib.parse import unquote

from nhc.core.matching.node_ranges import expand


class FakeSlurmRest(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, names: Sequence[str], version: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.version = version
        self.token = "a.b.c"
        self.nodes: Dict[str, Dict[str, Any]] = {
            name: {
                "name": name,
                "hostname": name,
                "address": name,
                "flags": ["IDLE"],
                "reason": "",
                "user": "",
                "when": 0,
            }
            for name in names
        }
        self.requests: List[str] = []
        self.alone: Dict[str, List[str]] = {}
        """What nodes are shown as where they are asked for by themselves, by name."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def change(self, names: str, states: Sequence[str], reason: str, user: str = "root") -> bool:
        for name in expand(names):
            node = self.nodes.get(name)
            if node is None:
                return False
            if "RESUME" in states:
                node.update(flags=["IDLE"], reason="", user="", when=0)
            elif states:
                node["flags"] = ["IDLE", *states]
            if reason:
                node.update(reason=reason, user=user, when=int(time.time()))
        return True

    def show(self, node: Dict[str, Any]) -> Dict[str, Any]:
        when: Any = node["when"]
        if self.version >= 40:
            when = {"set": True, "infinite": False, "number": when}
        return {"name": node["name"], "state": node["flags"], "reason": node["reason"], "partitions": ["work"],
                "reason_set_by_user": node["user"], "reason_changed_at": when, "cpus": 8,
                "hostname": node["hostname"], "address": node["address"]}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: FakeSlurmRest
    disable_nagle_algorithm = True  # or a body waits 40 ms for the acknowledgement of its head

    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, value: Dict[str, Any], status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, error: str, status: int = 500) -> None:
        entry = {"description": "", "error_number": 2009, "error": error, "source": "_update_node"}
        self.answer({"errors": [entry], "warnings": []}, status)

    def do_GET(self) -> None:
        self.server.requests.append(f"GET {self.path}")
        if self.headers.get("X-SLURM-USER-TOKEN") != self.server.token:
            self.fail("Authentication failure", 401)
            return
        prefix = f"/slurm/v0.0.{self.server.version}"
        if self.path == "/openapi/v3":
            methods: Dict[str, Any] = {"get": {}, "post": {}, "delete": {}}
            older = f"/slurm/v0.0.{self.server.version - 1}"
            self.answer({"paths": {f"{prefix}/node/{{node_name}}": methods, f"{older}/node/{{node_name}}": methods,
                                   "/slurm/v0.0.99/node/{node_name}": methods}})  # fmt: skip
        elif self.path == f"{prefix}/jobs":
            self.answer({"jobs": [], "errors": [], "warnings": []})
        elif self.path == f"{prefix}/nodes":
            nodes = [self.server.show(node) for node in self.server.nodes.values()]
            self.answer({"nodes": nodes, "errors": [], "warnings": []})
        else:
            match = re.fullmatch(f"{re.escape(prefix)}/node/([^/]+)", self.path)
            node = self.server.nodes.get(unquote(match[1])) if match else None
            if node is None:
                self.fail("Invalid node name specified")
            else:
                flags = self.server.alone.get(node["name"], node["flags"])
                self.answer({"nodes": [self.server.show({**node, "flags": flags})], "errors": []})

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match = re.fullmatch(rf"/slurm/v0\.0\.{self.server.version}/node/([^/]+)", self.path)
        if match is None or not isinstance(body.get("state", []), list):
            self.fail("Unable to parse request", 400)
        elif self.server.change(unquote(match[1]), body.get("state", []), body.get("reason", "")):
            self.answer({"errors": [], "warnings": []})
        else:
            self.fail("Invalid node name specified")
