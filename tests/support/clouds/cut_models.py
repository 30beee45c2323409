"""Cut the part that nhc uses out of the vendors' own models, which are too large to install for tests (137 and 286 MB).

    python tests/support/clouds/cut_models.py google .../googleapiclient/discovery_cache/documents/compute.v1.json

writes tests/data/clouds/google-compute-v1.json anew.
"""

from __future__ import annotations

import json
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


if __name__ == "__main__":
    which, source = sys.argv[1:]
    made = {"google": cut_google}[which](json.loads(Path(source).read_text()))
    target = DATA / {"google": "google-compute-v1.json"}[which]
    target.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
    print(f"{target}: {target.stat().st_size} bytes, {len(made['schemas'])} schemas")
