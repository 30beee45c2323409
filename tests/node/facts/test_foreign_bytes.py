"""What comes from files and services of others never upsets a parser: only the errors that it names."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.core.system import protobuf
from nhc.node.checks import cloud, limits, net, runtime
from nhc.node.facts import bmc, certificates, crashes, fstab, scheduler
from nhc.node.facts.fstab import parse_swaps
from nhc.node.facts.memory_pages import parse_buddyinfo, parse_unmovable
from nhc.node.facts.pcie import ShortConfig, parse_acs_port

WORDS = ["1", "1a", "|", " | ", "13/99/2024", "Pre-Init", "25:61:61", "Asserted", "ECC", "\n"]
NEAR_SEL = st.lists(st.sampled_from(WORDS))
KEYS = ["Events", "EventType", "NotBefore", "Resources", "Code", "State", "action", "time", "x"]
ANSWERS = ["scheduled", "spot", "rebalance", "event", "upcoming", "preempted", "name", "events", "due"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
SAID = st.tuples(st.sampled_from([0, 200, 404, 503]), JSON.map(json.dumps)).map(list)


@given(st.binary(max_size=400))
def test_bytes(data):
    for parse in (certificates.parse_x509, protobuf.fields, runtime.parse_status, runtime.parse_version):
        try:
            parse(data)
        except ValueError:
            pass
    try:
        parse_acs_port(data)
    except ShortConfig:
        pass
    runtime.grpc_status(data)


@given(st.binary(min_size=65, max_size=4096))
def test_configuration_space(data):
    parse_acs_port(data)


@pytest.mark.thorough
@given(st.text(max_size=200) | NEAR_SEL.map("".join))
def test_texts(text):
    for parse in (bmc.parse_sensors, bmc.parse_events, parse_buddyinfo, parse_unmovable,
                  crashes.parse_record, limits.parse_neighbours, net.parse_ping_summary, scheduler.parse_slurm_ping,
                  fstab.parse_fstab, parse_swaps, cloud.moment, bmc.event_time):  # fmt: skip
        parse(text)
    for parse, wrong in ((certificates.parse_ssh, ValueError), (bmc.parse_log, bmc.BmcError)):
        try:
            parse(text)
        except wrong:
            pass


@pytest.mark.parametrize("text", ["31 Feb 2026 01:02:03 GMT", "2026-13-41T25:61:61Z", "99 Jan 2026 99:99:99 GMT"])
def test_a_time_that_is_none(text):
    cloud.moment(text)
    assert bmc.event_time("13/45/2026 01:02:03") is None


@pytest.mark.thorough
@given(st.sampled_from(["aws", "gcp", "azure", "oci"]), st.dictionaries(st.sampled_from(ANSWERS), SAID))
def test_a_metadata_service_of_another_mind(name, said):
    try:
        cloud.announcements(name, said)
    except (cloud.BadAnswer, cloud.NoHttpResponse):
        pass
