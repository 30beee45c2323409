"""Announced maintenance: a loopback service as strict as the real ones about paths and headers."""

import json
import re
import socket
import time

import pytest

from nhc.core.host import Host
from nhc.core.model import Verdict
from nhc.lab.testing.fake_host import FakeHost
from nhc.node.checks.cloud import moment
from nhc.node.facts.machine_identity import AZURE_TAG
from tests.support.http_server import Handler, serving
from tests.support.judge import judge, judge_all

DMI = "sys/class/dmi/id"
CLOUDS = {"aws": ("sys_vendor", "Amazon EC2"), "gcp": ("product_name", "Google Compute Engine"),
          "azure": ("chassis_asset_tag", AZURE_TAG), "oci": ("chassis_asset_tag", "OracleCloud.com")}  # fmt: skip
HEADER = {"aws": ("X-aws-ec2-metadata-token", "secret-token"), "gcp": ("Metadata-Flavor", "Google"),
          "azure": ("Metadata", "true"), "oci": ("Authorization", "Bearer Oracle")}  # fmt: skip
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
GCP = "/computeMetadata/v1/instance"
UPCOMING = f"{GCP}/upcoming-maintenance?alt=json"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
OCI = "/opc/v2/instance/timeMaintenanceRebootDue"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


class Service(Handler):
    def answer(self, status, body=""):
        super().answer(status, filled_in(body))

    def put(self):
        fits = self.path == "/latest/api/token" and "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if fits else 400, "secret-token" if fits else "")

    def get(self):
        self.server.asked.append(self.path)
        name, value = HEADER[self.server.cloud]
        if self.headers.get(name) != value:
            self.answer(401)
            return
        found = self.server.answers.get(self.path, (404, "not found"))
        self.answer(*(found if isinstance(found, tuple) else (200, found)))


@pytest.fixture(scope="module")
def service():
    with serving(Service) as server:
        yield server


@pytest.fixture
def node(service, tmp_path):
    def make(cloud, answers):
        service.cloud, service.answers, service.asked = cloud, answers, []
        leaf, text = CLOUDS[cloud]
        (tmp_path / DMI).mkdir(parents=True)
        (tmp_path / DMI / leaf).write_text(f"{text}\n")
        return Host(str(tmp_path), environ={"NHC_METADATA_URL": f"http://127.0.0.1:{service.server_port}"})

    return make


FORMS = {"iso": "%Y-%m-%dT%H:%M:%SZ", "rfc": "%d %b %Y %H:%M:%S GMT", "mail": "%a, %d %b %Y %H:%M:%S GMT"}


def at(form, ahead):
    """A time so many seconds after it is asked for: the service fills it in."""
    return f"@{form}:{ahead}@"


def filled_in(body):
    def moment_of(match):
        return time.strftime(FORMS[match[1]], time.gmtime(time.time() + int(match[2])))

    return re.sub(r"@(\w+):(-?\d+)@", moment_of, body)


def event(code, ahead, state="active"):
    return json.dumps(
        [{"NotBefore": at("rfc", ahead), "Code": code, "Description": "scheduled", "EventId": "e-1", "State": state}]
    )


def azure(kind, ahead, name="node-1", status="Scheduled"):
    found = {"EventId": "A1", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": [name],
             "EventStatus": status,
             "NotBefore": at("mail", ahead), "Description": "Host is updated."}  # fmt: skip
    return {NAME: "node-1", EVENTS: json.dumps({"DocumentIncarnation": 1, "Events": [found]})}


def gcp(**answers):
    return {f"{GCP}/maintenance-event": "NONE", f"{GCP}/preempted": "FALSE",
            UPCOMING: (503, '{ "error": "no notifications" }'),
            **{{"event": f"{GCP}/maintenance-event", "upcoming": UPCOMING, "preempted": f"{GCP}/preempted"}[k]: v
               for k, v in answers.items()}}  # fmt: skip


def planned(ahead, status="PENDING"):
    return json.dumps({"can_reschedule": "true", "maintenance_status": status, "type": "SCHEDULED",
                       "maintenance_reasons": ["PLANNED_UPDATE"], "window_start_time": at("iso", ahead)})  # fmt: skip


@pytest.mark.parametrize(
    ("cloud", "answers", "verdict", "said"),
    [
        ("aws", {}, Verdict.OK, ""),
        ("aws", {SCHEDULED: "[]"}, Verdict.OK, ""),
        ("aws", {SCHEDULED: event("system-reboot", 40000)}, Verdict.WARN, "rebooted (system-reboot): in 11h"),
        ("aws", {SCHEDULED: event("system-reboot", 40000, "completed")}, Verdict.OK, ""),
        ("aws", {SCHEDULED: event("instance-retirement", 100 * 86400)}, Verdict.OK, ""),
        ("aws", {SCHEDULED: event("instance-stop", 600)}, Verdict.CRIT, "will be stopped"),
        ("aws", {SPOT: json.dumps({"action": "stop", "time": at("iso", 118)})}, Verdict.CRIT, "reclaimed (stop)"),
        ("aws", {REBALANCE: json.dumps({"noticeTime": at("iso", -1)})}, Verdict.WARN, "likely to be reclaimed"),
        ("gcp", gcp(), Verdict.OK, ""),
        ("gcp", gcp(upcoming="NONE"), Verdict.OK, ""),
        ("gcp", gcp(upcoming="{ }"), Verdict.OK, ""),
        ("gcp", gcp(upcoming=planned(7200)), Verdict.WARN, "PLANNED_UPDATE"),
        ("gcp", gcp(upcoming=json.dumps({"x": {"windowStartTime": at("iso", 110)}})), Verdict.CRIT, "in 1m"),
        ("gcp", gcp(upcoming=planned(-50, "ONGOING")), Verdict.CRIT, "any moment"),
        ("gcp", gcp(event="TERMINATE_ON_HOST_MAINTENANCE"), Verdict.CRIT, "stopped"),
        ("gcp", gcp(event="MIGRATE_ON_HOST_MAINTENANCE"), Verdict.WARN, "migrated live"),
        ("gcp", gcp(preempted="TRUE"), Verdict.CRIT, "preempted"),
        ("azure", {NAME: "node-1", EVENTS: '{"DocumentIncarnation":0,"Events":[]}'}, Verdict.OK, ""),
        ("azure", azure("Reboot", 700), Verdict.CRIT, "will be rebooted (Reboot): in 11m"),
        ("azure", azure("Redeploy", 7000), Verdict.WARN, "local disks lost"),
        ("azure", azure("Freeze", 7), Verdict.WARN, "pauses"),
        ("azure", azure("Reboot", 700, "node-2"), Verdict.OK, ""),
        ("azure", azure("Preempt", -5, status="Started"), Verdict.CRIT, "deleted"),
        ("oci", {}, Verdict.SKIP, ""),
        ("oci", {OCI: "null"}, Verdict.OK, ""),
        ("oci", {OCI: at("iso", 86400)}, Verdict.WARN, "by a reboot"),
    ],
)  # fmt: skip
def test_what_each_cloud_announces(node, cloud, answers, verdict, said):
    found = judge(node(cloud, answers), "check_cloud_maintenance")
    taken = "reclaimed" in said or said in ("preempted", "deleted")
    reason = "CloudReclaim" if taken else "CloudMaintenance" if said else found.reason
    assert (found.verdict, found.reason) == (verdict, reason), found
    assert said in found.message


@pytest.mark.parametrize(
    ("cloud", "answers", "reason"),
    [
        ("aws", {SCHEDULED: "<html>"}, "MetadataUnreadable"),
        ("aws", {SCHEDULED: (500, "")}, "MetadataSilent"),
        ("aws", {SPOT: "[]"}, "MetadataUnreadable"),
        ("gcp", gcp(upcoming='["some event"]'), "MetadataUnreadable"),
        ("gcp", gcp(event=(403, "")), "MetadataSilent"),
        ("azure", {NAME: "node-1", EVENTS: "{}"}, "MetadataUnreadable"),
        ("azure", {}, "MetadataSilent"),
        ("oci", {OCI: "soon"}, "MetadataUnreadable"),
    ],
)
def test_an_answer_that_makes_no_sense_is_unknown(node, cloud, answers, reason):
    found = judge(node(cloud, answers), "check_cloud_maintenance")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, reason)


def test_the_lead_times_are_the_sites(node):
    host = node("aws", {SCHEDULED: event("instance-reboot", 3000)})
    assert judge(host, "check_cloud_maintenance -c 1h").verdict is Verdict.CRIT
    assert judge(host, "check_cloud_maintenance -c 0 -w 50m").verdict is Verdict.WARN
    assert judge(host, "check_cloud_maintenance -c 0 -w 40m").verdict is Verdict.OK


def test_two_announcements_are_two_findings(node):
    host = node("aws", {SCHEDULED: event("instance-reboot", 3000), REBALANCE: "{}"})
    assert [o.target for o in judge_all(host, "check_cloud_maintenance")] == ["instance-reboot", "rebalance"]


def test_without_a_cloud_nothing_is_asked():
    assert judge(FakeHost(), "check_cloud_maintenance").verdict is Verdict.SKIP


@pytest.mark.slow
def test_a_service_that_is_silent_is_given_up_in_time(tmp_path):
    (tmp_path / DMI).mkdir(parents=True)
    (tmp_path / DMI / "sys_vendor").write_text("Amazon EC2\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        found = judge(Host(str(tmp_path)), f"check_cloud_maintenance -u {url}")
        assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "MetadataSilent")
        assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [("21 Jan 2019 09:00:43 GMT", 1548061243), ("Mon, 21 Jan 2019 09:00:43 GMT", 1548061243),
     ("2019-01-21T09:00:43Z", 1548061243), ("2019-01-21T09:00:43.5+00:00", 1548061243.5), ("soon", None), (None, None)],
)  # fmt: skip
def test_times_of_all_clouds(text, expected):
    assert moment(text) == expected
