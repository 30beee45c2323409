"""Cut the part that nhc uses out of the vendors' own models, which are too large to install for tests (137 and 286 MB).

    python tests/support/clouds/cut_models.py google .../googleapiclient/discovery_cache/documents/compute.v1.json

writes tests/data/clouds/google-compute-v1.json anew; so does `azure` with the folder azure/mgmt of
azure-mgmt-compute and azure-mgmt-impactreporting, and `oracle` with the folder of the package oci.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "data/clouds"

GOOGLE = {
    "instances": (
        "get", "list", "reset", "stop", "start", "reportHostAsFaulty", "testIamPermissions", "getSerialPortOutput",
        "getScreenshot",
    ),
    "zoneOperations": ("get", "list"),
    "instanceGroupManagers": ("get", "recreateInstances", "listManagedInstances"),
    "regionInstanceGroupManagers": ("get", "recreateInstances", "listManagedInstances"),
    "regionOperations": ("get", "list"),
}  # fmt: skip
"""The methods of compute v1 that the repairer calls."""

_DROPPED = (
    "description",
    "enumDescriptions",
    "annotations",
    "enumDeprecated",
    "deprecated",
    "parameterOrder",
    "scopes",
)

PRUNED = {
    "Instance": {
        "id", "name", "status", "statusMessage", "zone", "disks", "networkInterfaces", "metadata", "scheduling",
        "lastStartTimestamp", "lastStopTimestamp", "reservationAffinity", "resourceStatus", "kind", "selfLink",
    },
    "AttachedDisk": {"type", "boot", "index", "kind"},
    "NetworkInterface": {"name", "networkIP", "kind"},
    "Scheduling": {"automaticRestart", "onHostMaintenance", "preemptible", "provisioningModel"},
    "ResourceStatus": {"physicalHost", "physicalHostTopology", "upcomingMaintenance"},
    "InstanceGroupManager": {"name", "autoHealingPolicies", "instanceLifecyclePolicy", "targetSize", "kind", "zone"},
    "ManagedInstance": {"currentAction", "id", "instance", "instanceStatus", "lastAttempt", "name"},
    "Operation": {
        "clientOperationId", "id", "kind", "name", "operationType", "status", "statusMessage", "targetLink", "targetId",
        "user", "zone", "region", "error", "httpErrorMessage", "httpErrorStatusCode", "progress", "insertTime",
        "startTime", "endTime", "selfLink",
    },
}  # fmt: skip
"""Of large schemas, the properties that are used; all of the others'."""


def cut_google(document: dict[str, Any]) -> dict[str, Any]:
    """The methods above with every schema that they reach."""
    methods = {
        f"{resource}.{name}": _plain(document["resources"][resource]["methods"][name])
        for resource, names in GOOGLE.items()
        for name in names
    }
    schemas: dict[str, Any] = {}
    todo = sorted({ref for method in methods.values() for ref in _refs(method)})
    while todo:
        name = todo.pop()
        if name not in schemas:
            schema = _plain(document["schemas"][name])
            if name in PRUNED:
                kept = PRUNED[name]
                schema["properties"] = {key: value for key, value in schema["properties"].items() if key in kept}
            schemas[name] = schema
            todo += sorted(_refs(schema))
    return {
        "source": "Google Compute Engine API discovery document, as google-api-python-client ships it (Apache-2.0)",
        "id": document["id"],
        "revision": document["revision"],
        "servicePath": document["servicePath"],
        "methods": methods,
        "schemas": dict(sorted(schemas.items())),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # A property may be called "description": there its value is an object.
        return {key: _plain(one) for key, one in value.items() if key not in _DROPPED or isinstance(one, dict)}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_refs(one) for one in value.values()))
    return set().union(*(_refs(one) for one in value)) if isinstance(value, list) else set()


AZURE = {
    "compute": (
        "virtual_machines_get", "virtual_machines_restart", "virtual_machines_redeploy", "virtual_machines_reimage",
        "virtual_machines_deallocate", "virtual_machines_power_off", "virtual_machines_start",
        "virtual_machines_retrieve_boot_diagnostics_data", "virtual_machines_delete",
        "virtual_machine_scale_set_vms_get",
        "virtual_machine_scale_set_vms_restart", "virtual_machine_scale_set_vms_redeploy",
        "virtual_machine_scale_set_vms_reimage", "virtual_machine_scale_set_vms_deallocate",
        "virtual_machine_scale_set_vms_power_off", "virtual_machine_scale_set_vms_start",
        "virtual_machine_scale_set_vms_delete", "virtual_machine_scale_set_vms_retrieve_boot_diagnostics_data",
    ),
    "impactreporting": ("workload_impacts_create", "workload_impacts_get", "insights_list_by_subscription"),
}  # fmt: skip
AZURE_MODELS = {
    "compute": (
        "VirtualMachine", "VirtualMachineProperties", "VirtualMachineInstanceView", "VirtualMachineScaleSetVM",
        "VirtualMachineScaleSetVMProperties", "VirtualMachineScaleSetVMInstanceView", "InstanceViewStatus",
        "RetrieveBootDiagnosticsDataResult", "MaintenanceRedeployStatus",
    ),
    "impactreporting": ("WorkloadImpact", "WorkloadImpactProperties"),
}  # fmt: skip


def cut_azure(folder: Path) -> dict[str, Any]:
    """Paths, verbs and query parameters of the calls above, and the wire names of the models, read off the source."""
    made: dict[str, Any] = {"source": "azure-mgmt-compute and azure-mgmt-impactreporting (MIT)", "versions": {}}
    made["methods"], made["models"] = {}, {}
    for package, names in AZURE.items():
        found = re.search(r'VERSION = "([^"]+)"', (folder / package / "_version.py").read_text())
        assert found, package
        made["versions"][package] = found[1]
        text = (folder / package / "operations/_operations.py").read_text()
        for name in names:
            body = re.search(rf"^def build_{name}_request\(.*?(?=^def |^class )", text, re.S | re.M)
            assert body, name
            url = re.search(r'_url = "([^"]+)"', body[0])
            verb = re.search(r'method="(\w+)"', body[0])
            version = re.search(r'"api-version", "([^"]+)"', body[0])
            assert url, name
            assert verb, name
            assert version, name
            query = sorted(set(re.findall(r'_params\["([^"]+)"\]', body[0])))
            made["methods"][name] = {"path": url[1], "verb": verb[1], "query": query, "version": version[1]}
        classes = {
            node.name: node
            for node in ast.parse((folder / package / "models/_models.py").read_text()).body
            if isinstance(node, ast.ClassDef)
        }
        for name in AZURE_MODELS[package]:
            made["models"][name] = _azure_fields(classes, name)
    return made


def _azure_fields(classes: dict[str, ast.ClassDef], name: str) -> list[str]:
    """The wire names of a model's fields, its bases' too."""
    found: set[str] = set()
    for base in classes[name].bases:
        inner = ast.unparse(base).rpartition(".")[2]
        found |= set(_azure_fields(classes, inner)) if inner in classes else set()
    for node in classes[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call) and isinstance(node.target, ast.Name):
            given = {word.arg: word.value for word in node.value.keywords}
            wire = given.get("name")
            found.add(wire.value if isinstance(wire, ast.Constant) else node.target.id)
    return sorted(found)


ORACLE = {
    "core/compute_client.py": (
        "get_instance", "list_instances", "instance_action", "update_instance", "terminate_instance",
        "capture_console_history", "get_console_history", "get_console_history_content", "delete_console_history",
        "list_instance_maintenance_events", "get_compute_gpu_memory_cluster", "update_compute_gpu_memory_cluster",
    ),
    "core/compute_management_client.py": (
        "get_instance_pool_instance", "list_instance_pool_instances", "detach_instance_pool_instance",
    ),
    "container_engine/container_engine_client.py": ("get_node_pool", "delete_node", "get_work_request"),
}  # fmt: skip
ORACLE_MODELS = {
    "core": (
        "Instance", "UpdateInstanceDetails", "DetachInstancePoolInstanceDetails", "InstancePoolInstance",
        "InstanceSummary", "ConsoleHistory", "CaptureConsoleHistoryDetails", "InstanceMaintenanceEventSummary",
        "ComputeGpuMemoryCluster", "UpdateComputeGpuMemoryClusterDetails", "RebootMigrateActionDetails",
    ),
    "container_engine": ("NodePool", "Node", "WorkRequest"),
}  # fmt: skip


def cut_oracle(folder: Path) -> dict[str, Any]:
    """Paths, verbs, parameters of the calls above, and the wire names and words of the models, read off the source."""
    version = re.search(r'__version__ = "([^"]+)"', (folder / "version.py").read_text())
    assert version
    made: dict[str, Any] = {"source": "oci (UPL-1.0 or Apache-2.0)", "version": version[1], "methods": {}, "models": {}}
    for file, names in ORACLE.items():
        text = (folder / file).read_text()
        base = re.search(r"'base_path': '([^']+)'", text)
        assert base, file
        for name in names:
            body = re.search(rf"^    def {name}\(.*?(?=^    def |\Z)", text, re.S | re.M)
            assert body, name
            path = re.search(r'resource_path = "([^"]+)"', body[0])
            verb = re.search(r'^        method = "(\w+)"', body[0], re.M)
            assert path, name
            assert verb, name
            query = re.search(r"query_params = \{\n(.*?)\n        \}", body[0], re.S)
            headers = re.search(r"header_params = \{\n(.*?)\n        \}", body[0], re.S)
            made["methods"][name] = {
                "path": base[1] + path[1],
                "verb": verb[1],
                "query": sorted(set(re.findall(r'^\s+"(\w+)":', query[1] if query else "", re.M))),
                "headers": sorted(set(re.findall(r'"([\w-]+)":', headers[1] if headers else ""))),
            }
    for package, classes in ORACLE_MODELS.items():
        for name in classes:
            snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            text = (folder / package / "models" / f"{snake}.py").read_text()
            fields = re.search(r"self.attribute_map = (\{.*?\})", text, re.S)
            assert fields, name
            wire = ast.literal_eval(fields[1])
            words: dict[str, list[str]] = {}
            for field in wire:
                found = re.findall(rf'^    {field.upper()}_[A-Z0-9_]+ = "([^"]+)"', text, re.M)
                if found:
                    words[wire[field]] = sorted(set(found))
            made["models"][name] = {"fields": sorted(wire.values()), "words": words}
    return made


if __name__ == "__main__":
    which, source = sys.argv[1], Path(sys.argv[2])
    if which == "google":
        made, target = cut_google(json.loads(source.read_text())), DATA / "google-compute-v1.json"
    elif which == "oracle":
        made, target = cut_oracle(source), DATA / "oracle.json"
    else:
        made, target = cut_azure(source), DATA / "azure.json"
    target.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    print(f"{target}: {target.stat().st_size} bytes")
