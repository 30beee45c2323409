"""Each check is asked for by a configuration that comes with nhc, or has a reason why not."""

import re
from pathlib import Path

from nhc.core.check import find_all

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATIONS = (
    ROOT / "nhc/core/data/default.conf",
    ROOT / "nhc/core/data/suites.conf",
    *(ROOT / "conf/profiles").glob("*.conf"),
)

NEEDS_A_VALUE = "the site says what is right: it means nothing, or is a mistake, without an argument of its own"
POLICY = "a choice of the site, not a fault of the node"
SCHEDULER = "for nodes of one scheduler, whose hooks ask for it"
SLOW = "takes seconds or asks over the network: for the agent, with |every|"
AROUND_A_JOB = "for an epilog or an idle node: it is no fault while a job runs"
OTHERS = "another check of the same thing is asked for; this is the form of another tool, for who comes from it"
NO_REFERENCE = "UNKNOWN on a sound node that has nothing to compare with"

REASONS = {
    "check_app_gpu_clocks": POLICY,
    "check_bmc_sel": SLOW,
    "check_bmc_sensors": SLOW,
    "check_cloud_maintenance": SLOW,
    "check_cmd_dmesg": OTHERS,
    "check_cmd_output": NEEDS_A_VALUE,
    "check_cpu_frequency": POLICY,
    "check_cpu_power": POLICY,
    "check_dns_resolve": SLOW,
    "check_eth_mtu": POLICY,
    "check_eth_speed": NO_REFERENCE,
    "check_fs_mount": OTHERS,
    "check_fs_mount_ro": NEEDS_A_VALUE,
    "check_gate": "genconf, the node's hooks and docs/new-nodes.md ask for it where a gate was set up",
    "check_gpu_compute_mode": POLICY,
    "check_gpu_idle": "for idle nodes, by ClusterMAX's limits: nhc profile clustermax asks for it",
    "check_gpu_ifoe": "never tried on such hardware: genconf writes it where it holds",
    "check_gpu_memory_numa": POLICY,
    "check_gpu_mig": POLICY,
    "check_gpu_p2p": "seconds a node: genconf writes it where all pairs reach each other",
    "check_gpu_persistence": POLICY,
    "check_gpu_processes": AROUND_A_JOB,
    "check_gpu_proof_beside": "uses the GPUs: docs/deep-checks.md says who may ask for it",
    "check_gpu_stalled": "it is the job that stands still, and a service may look the same: a site asks for it",
    "check_hugepages": POLICY,
    "check_hw_ib": OTHERS,
    "check_hw_mcelog": OTHERS,
    "check_hw_mem": OTHERS,
    "check_hw_topology": NEEDS_A_VALUE,
    "check_ib_firmware": POLICY,
    "check_ib_guid": NO_REFERENCE,
    "check_ib_pkeys": "a second fabric has partitions of its own: the site names them",
    "check_ib_rate": NO_REFERENCE,
    "check_iommu": POLICY,
    "check_kernel_taint": POLICY,
    "check_mem_fragmentation": AROUND_A_JOB,
    "check_mem_promised": SCHEDULER,
    "check_minimum_versions": "WARN on a node that works: whether an update can wait is the site's to say",
    "check_moab_rm": SCHEDULER,
    "check_moab_sched": SCHEDULER,
    "check_moab_torque": SCHEDULER,
    "check_net_socket": NEEDS_A_VALUE,
    "check_nic_roles": "a port may be spare on one node: genconf writes it where all peers are alike",
    "check_npd_health": "for who comes from node-problem-detector: docs/migration-others.md",
    "check_npd_log_counter": "for who comes from node-problem-detector: docs/migration-others.md",
    "check_nccl_conf": POLICY,
    "check_nv_healthmon": OTHERS,
    "check_dcgm_health": "UNKNOWN where DCGM is not set up: genconf writes it where it is",
    "check_nvsmi_healthmon": OTHERS,
    "check_profiling": POLICY,
    "check_ps_loadavg": NEEDS_A_VALUE,
    "check_ps_unauth_users": SCHEDULER,
    "check_ps_userproc_lineage": SCHEDULER,
    "check_runtime_log": SLOW,
    "check_roce_ports": NEEDS_A_VALUE,
    "check_scheduler_node": SCHEDULER,
    "check_scheduler_ping": SCHEDULER,
    "check_sensors_hwmon": "boards leave inputs open, whose alarms always stand: genconf writes it where none does",
    "check_ssh_hostcert": NEEDS_A_VALUE,
    "check_tls_cert": NEEDS_A_VALUE,
    "check_uptime": POLICY,
    "check_vbios_version": POLICY,
}  # fmt: skip
"""Checks without a required argument that no configuration of nhc's asks for."""

NOT_BUILT_IN = {
    "check_gpu_xid": "check_kmsg judges the same lines",
    "check_hw_physmem": NEEDS_A_VALUE,
    "check_hw_swap": NEEDS_A_VALUE,
    "check_nvlink_status": "check_gpu_links judges the same links",
}
"""Those that profiles ask for and the configuration of a node without any does not. Tests under load are suites'."""


def used(*paths):
    return {name for path in paths or CONFIGURATIONS for name in re.findall(r"\|\s*(check_\w+)", path.read_text())}


def test_each_check_is_asked_for_or_has_a_reason():
    """One with a required argument is asked for by who knows the value: the site, genconf or a profile."""
    own = [check for check in find_all() if not check.distribution]
    without = {check.name for check in own if not any(param.required for param in check.params)} - used()
    assert without == set(REASONS), "a check that nobody asks for finds nothing: default.conf, a profile, or a reason"


def test_what_a_profile_asks_for_the_built_in_configuration_asks_too_or_there_is_a_reason():
    """A node of a type that no profile describes has the same hardware; a check of what is not there is SKIP."""
    free = {check.name for check in find_all() if not any(param.required for param in check.params)}
    built_in, suites, *profiles = CONFIGURATIONS
    assert (used(*profiles) & free) - used(built_in) - used(suites) == set(NOT_BUILT_IN)
