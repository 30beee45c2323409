"""What runs the remedy loop, the server and the console in a cluster: taken by a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml

from nhc.console import settings as console_settings
from nhc.marks import plugins
from nhc.marks.ports.adapter import OWNER_SETTING, REMEDY_OWNER, Effect, Mark
from nhc.remedy import remedy_file
from nhc.store.server.settings import load as load_server
from nhc_adapters.kubernetes.api.client import MERGE_PATCH, node_path
from nhc_adapters.kubernetes.nodes.drain import DrainRules, sort_pods
from nhc_adapters.kubernetes.plugin import Adapter
from nhc_adapters.kubernetes.repair.handoff import ACTORS, KubernetesHandoff
from nhc_adapters.kubernetes.repair.job_runner import JobRunner
from nhc_adapters.kubernetes.repair.repairer import KubernetesJobs
from tests.adapters.kubernetes.test_manifests import IMAGE, MANIFESTS, SYSTEM, TEMPLATE, chart, helm
from tests.support.crds import install
from tests.support.dra import Cluster, gpu
from tests.support.kube import Kube, environment

PEOPLE = """anyone = []
[people.anna]
roles = ["operator"]
nodes = ["gpu*"]
[[people.anna.tokens]]
sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
ends = "2099-01-31"
"""
ON = (
    f"--set-literal=console.settings={PEOPLE}",
    "--set=remedy.enabled=true,server.enabled=true,console.enabled=true,store.secret=nhc-store",
    "--set=server.tlsSecret=nhc-server-tls,console.tlsSecret=nhc-console-tls,remedy.jobs=true",
)
OURS = ("nhc-remedy", "nhc-repair", "nhc-server", "nhc-console")
NOT_OURS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/instance",
            "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart",
            "checksum/settings")  # fmt: skip


def documents(text: str) -> Dict[str, Any]:
    found = [doc for doc in yaml.safe_load_all(text) if doc]
    return {f"{doc['kind']}/{doc['metadata']['name']}": doc for doc in found
            if doc["metadata"]["name"].startswith(OURS)}  # fmt: skip


def kustomized(plane: Any, name: str = "remedy-repairs") -> str:
    return str(plane.kubectl("kustomize", str(MANIFESTS / name)).stdout)


def taken(plane: Any, text: str) -> str:
    said = plane.kubectl("apply", "--dry-run=server", "--force-conflicts", "--server-side", "-f", "-", stdin=text)
    return str(said.stdout)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--set=remedy.handoffs={cluster-api,metal3,self-node-remediation,fence-agents-remediation,karpenter}",),
        ("--set=remedy.devices=true",),
        ("--set=networkPolicy.enabled=false,remedy.jobs=false,remedy.environment.AWS_SECRET_ACCESS_KEY=aws",
         "--set=server.clientCa=nodes-ca,remedy.storage.className=fast"),
        ("--set=server.pushFrom[0].ipBlock.cidr=10.0.0.0/8,console.openFrom[0].podSelector.matchLabels.a=b",),
    ],
    ids=["all", "handoffs", "devices", "options", "peers"],
)  # fmt: skip
def test_the_api_server_takes_the_chart(installed: Any, more: tuple[str, ...]) -> None:
    rendered = chart(installed, *ON, *more)
    said = taken(installed, rendered)
    assert said.count("serverside-applied (server dry run)") == rendered.count("\nkind: ")
    assert "statefulset.apps/nhc-remedy" in said


def test_the_api_server_takes_what_kustomize_makes(installed: Any) -> None:
    rendered = kustomized(installed)
    said = taken(installed, rendered)
    assert said.count("serverside-applied (server dry run)") == len(list(yaml.safe_load_all(rendered)))
    for one in ("statefulset.apps/nhc-remedy", "deployment.apps/nhc-server"):
        assert one in said


def plain(value: Any) -> Any:
    """Without what each tool adds by itself."""
    if isinstance(value, dict):
        kept = {key: plain(one) for key, one in value.items() if key not in NOT_OURS}
        return {key: one for key, one in kept.items() if not (key in ("labels", "annotations") and one == {})}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def test_the_chart_and_kustomize_make_the_same(plane: Any) -> None:
    def made(text: str) -> Dict[str, Any]:
        found = {}
        for name, doc in documents(text).items():
            if doc["kind"] == "ConfigMap":
                continue
            for volume in doc.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", []):
                volume.pop("configMap", None)  # kustomize's names have a hash
            found[name] = plain(doc)
        return found

    ours = made(kustomized(plane))
    assert len(ours) == 20
    assert made(chart(plane, *ON, "--set=console.enabled=false")) == ours
    plain_loop = made(kustomized(plane, "remedy"))
    assert made(chart(plane, *ON, "--set=console.enabled=false,remedy.jobs=false")) == plain_loop
    rules = [rule for doc in plain_loop.values() for rule in doc.get("rules", ())]
    assert not [rule for rule in rules if {"jobs", "pods/log"} & set(rule["resources"])]  # no repairer is set up there


def test_the_rights_for_single_devices_are_given_where_they_are_asked_for_and_are_the_same_in_both(plane: Any) -> None:
    def role(text: str) -> Any:
        return plain(documents(text).get("ClusterRole/nhc-remedy-devices"))

    component = role(kustomized(plane, "overlays/remedy-devices"))
    assert component is not None
    assert role(chart(plane, *ON, "--set=remedy.devices=true")) == component
    assert role(chart(plane, *ON)) is None
    assert role(kustomized(plane)) is None


def test_nothing_of_it_runs_with_rights_on_its_node(plane: Any) -> None:
    for text, count in ((chart(plane, *ON), 3), (kustomized(plane), 2)):
        sets = [doc for doc in documents(text).values() if doc["kind"] in ("StatefulSet", "Deployment")]
        assert len(sets) == count
        for doc in sets:
            spec = doc["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert not [key for key in ("hostPID", "hostNetwork", "hostIPC") if spec.get(key)]
            assert not [one for one in spec["volumes"] if "hostPath" in one]
            (container,) = spec["containers"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            (store,) = [one for one in container["env"] if one["name"] == "NHC_STORE"]
            assert store["valueFrom"]["secretKeyRef"] == {"name": "nhc-store", "key": "url"}
            if doc["metadata"]["name"] != "nhc-remedy":
                assert spec["automountServiceAccountToken"] is False


def files(text: str, kind: str) -> str:
    (found,) = [doc["data"][f"{kind}.toml"] for doc in documents(text).values()
                if doc["kind"] == "ConfigMap" and doc["metadata"]["name"].startswith(f"nhc-{kind}")]  # fmt: skip
    return str(found)


def test_the_settings_are_ones_that_the_programs_take(plane: Any, tmp_path: Path) -> None:
    values = {"remedy": {"jobSettings": {"services": "a.service", "deadline": 600, "rungs": ["reboot"]}},
              "server": {"limits": {"body": "8MB", "waiting": 100}}}  # fmt: skip
    (tmp_path / "values.yaml").write_text(json.dumps(values))
    for text in (chart(plane, *ON, "-f", str(tmp_path / "values.yaml")), kustomized(plane)):
        remedy = remedy_file.parse(files(text, "remedy"))
        assert (remedy.leader.by, remedy.leader.settings["namespace"]) == ("kubernetes-lease", SYSTEM)
        assert remedy.sources.adapter == "kubernetes"
        assert remedy.mode("mark").value == "dry-run"
        for one in remedy.repairers:
            assert plugins.repairer(one.type)(one.settings).place.image.startswith(IMAGE)
            assert {rung.value for rung in one.rungs} == {"reboot"}
        (tmp_path / "server.toml").write_text(files(text, "server"))
        assert load_server(str(tmp_path / "server.toml")).listen == "0.0.0.0:20259"
    (tmp_path / "console.toml").write_text(files(chart(plane, *ON), "console"))
    assert console_settings.load(str(tmp_path / "console.toml")).listen == "0.0.0.0:9810"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set=store.secret=",), "store.secret"),
        (("--set=server.tlsSecret=",), "server.tlsSecret"),
        (("--set=remedy.handoffs={nobody}",), "/remedy/handoffs/0"),
        (("--set=remedy.jobSettings.image=mine",), "image"),
        (("--set-string=remedy.settings=[leader]\nby = \"store\"\n",), "[leader]"),
        (("--set=remedy.storage.size=much",), "/remedy/storage/size"),
        (("--set=server.replicas=0",), "/server/replicas"),
        (("--set-literal=console.settings=",), "people must be known"),
    ],
)  # fmt: skip
def test_the_chart_refuses_values_that_make_no_sense(plane: Any, options: tuple[str, ...], said: str) -> None:
    done = helm(plane, *TEMPLATE, f"--set=image.repository={IMAGE}", *ON, *options)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.fixture
def account(kube: Kube, installed: Any, tmp_path: Path) -> Any:
    """A kubeconfig of the account that the manifests make, with the rights of all handoffs."""
    install(kube)
    text = chart(
        installed,
        *ON,
        "--set=remedy.devices=true",
        f"--set=remedy.handoffs={{{','.join(name for name in ACTORS if name != 'kured')}}}",
    )
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    every = [doc for doc in yaml.safe_load_all(text) if doc and doc["kind"] in kinds]
    wanted = [doc for doc in every if doc["metadata"]["name"].startswith("nhc-remedy")]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    installed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=body)
    yield kube.kubeconfig(tmp_path, kube.token("nhc-remedy", SYSTEM))
    installed.kubectl("delete", "--wait=false", "-f", "-", stdin=body)


def test_the_loops_account_has_every_right_that_doctor_asks_for_and_may_not_delete_nodes(
    kube: Kube, account: Path
) -> None:
    config = str(account)
    adapter = Adapter({"NHC_KUBECONFIG": config}, {}, 10.0)
    rights: List[Any] = list(adapter.rights())
    rights += KubernetesJobs({"image": "nhc@sha256:" + "0" * 64, "namespace": SYSTEM, "kubeconfig": config}).rights()
    rights += JobRunner({"image": "nhc@sha256:" + "0" * 64, "namespace": SYSTEM, "kubeconfig": config}).rights()
    for name in ACTORS:
        more = {"template": f"{SYSTEM}/t"} if "remediation" in name else {"image": "nhc", "namespace": SYSTEM}
        given = {} if name in ("cluster-api", "metal3", "karpenter") else more
        rights += KubernetesHandoff({"to": name, "kubeconfig": config, **given}).rights()
    adapter.close()
    assert [right for right in rights if not right.granted] == []
    for what in ("nodes", "pods", "secrets"):
        said = kube.plane.kubectl("auth", "can-i", "delete" if what != "secrets" else "get", what,
                                  f"--as=system:serviceaccount:{SYSTEM}:nhc-remedy", check=False)  # fmt: skip
        assert said.stdout.strip() == "no", what


def test_the_loops_account_may_take_a_device_out_and_give_it_back(kube: Kube, account: Path) -> None:
    cluster = Cluster(kube)
    node = cluster.node()
    adapter = Adapter({"NHC_KUBECONFIG": str(account), OWNER_SETTING: REMEDY_OWNER}, {}, 10.0)
    try:
        adapter.nodes([node])
        assert len(adapter.device_states()) == 8
        for why in ("uncorrectable errors", "it is hot"):
            assert adapter.mark_device(node, gpu(node, 3), Mark(why)).effect is Effect.CHANGED
        assert cluster.out(node) == {"gpu-3": "NoSchedule"}
        adapter.tidy()
        assert adapter.clear_device(node, gpu(node, 3)).effect is Effect.CHANGED
        assert cluster.rules(node) == []
    finally:
        adapter.close()
        cluster.close()


def test_a_suites_account_may_see_whether_its_node_is_free_and_change_nothing(
    kube: Kube, account: Path, tmp_path: Path
) -> None:
    name, place = kube.node(), tmp_path / "suite"
    place.mkdir()
    adapter = Adapter({"NHC_KUBECONFIG": str(kube.kubeconfig(place, kube.token("nhc-remedy-suite", SYSTEM)))}, {}, 10.0)
    try:
        assert [state.name for state in adapter.nodes([name])] == [name]
    finally:
        adapter.close()
    for verb, what in (("patch", "nodes"), ("create", "pods"), ("create", "jobs"), ("get", "secrets")):
        said = kube.plane.kubectl("auth", "can-i", verb, what, "-n", SYSTEM,
                                  f"--as=system:serviceaccount:{SYSTEM}:nhc-remedy-suite", check=False)  # fmt: skip
        assert said.stdout.strip() == "no", (verb, what)


def test_the_loop_runs_as_the_manifest_starts_it(kube: Kube, account: Path, tmp_path: Path) -> None:
    """The container's own command, once, with the account's token, the Secret's store and the chart's settings."""
    text = chart(kube.plane, *ON)
    (container,) = documents(text)["StatefulSet/nhc-remedy"]["spec"]["template"]["spec"]["containers"]
    settings = files(text, "remedy").replace("[leader]", f'[leader]\nkubeconfig = "{account}"', 1)
    settings = settings.replace("[leader]", f'[evidence]\ndirectory = "{tmp_path}/evidence"\n[leader]', 1)
    (tmp_path / "remedy.toml").write_text(settings)
    argv = ["nhc", *container["args"][:-2], "--once"]
    argv[argv.index("/etc/nhc/remedy.toml")] = str(tmp_path / "remedy.toml")
    done = subprocess.run(
        [sys.executable, "-m", *argv], capture_output=True, text=True, check=False, timeout=120,
        env=environment(KUBECONFIG=str(account), NHC_STORE=f"sqlite:///{tmp_path}/store.db", POD_NAME="nhc-remedy-0"),
        cwd=os.path.dirname(MANIFESTS.parent),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "0 opened" in done.stdout
    lease = kube.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/nhc-remedy")
    assert lease["metadata"]["name"] == "nhc-remedy"
    assert (tmp_path / "store.db").exists()


def doctor(kube: Kube, config: Path, base: Path) -> subprocess.CompletedProcess[str]:
    settings = f"""
[actions]
mark = "on"
reboot = "on"
[sources]
adapter = "kubernetes"
[sources.settings]
NHC_KUBECONFIG = "{config}"
[evidence]
directory = "{base}/evidence"
[repairers.kubernetes]
image = "{IMAGE}@sha256:{"0" * 64}"
namespace = "{SYSTEM}"
kubeconfig = "{config}"
rungs = ["reboot"]
"""
    (base / "doctor.toml").write_text(settings)
    node = kube.node("n1", fake=False, spec={"providerID": "aws:///us-east-1a/i-1"})
    info = {"status": {"nodeInfo": {"bootID": "51f63ccd-64cd-4617-a959-c8a9d031f1be"}}}
    kube.admin.patch(f"{node_path(node)}/status", info, MERGE_PATCH)
    return subprocess.run(
        [sys.executable, "-m", "nhc", "doctor", "remedy", "--settings", str(base / "doctor.toml")],
        capture_output=True, text=True, check=False, timeout=120, cwd=os.path.dirname(MANIFESTS.parent),
        env=environment(NHC_STORE=f"sqlite:///{base}/store.db"),
    )  # fmt: skip


def test_doctor_finds_nothing_amiss_with_the_manifests_account(kube: Kube, account: Path, tmp_path: Path) -> None:
    done = doctor(kube, account, tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "create pods/eviction" in done.stdout
    assert f"create jobs in {SYSTEM}" in done.stdout


def test_doctor_names_the_rule_that_another_account_lacks(kube: Kube, installed: Any, tmp_path: Path) -> None:
    config = kube.kubeconfig(tmp_path, kube.token("default", kube.namespace))
    done = doctor(kube, config, tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    (line,) = [line for line in done.stdout.splitlines() if "patch nodes" in line and "nodes/status" not in line]
    assert line.startswith("FAILED")
    assert '{apiGroups: [""], resources: [nodes], verbs: [patch]}' in line
    assert "Traceback" not in done.stdout


def test_a_drain_may_evict_every_pod_of_ours(plane: Any) -> None:
    """What they keep in an emptyDir is of no use to their successors."""
    kustom = [plane.kubectl("kustomize", str(MANIFESTS / name)).stdout for name in ("base", "remedy-repairs", "jobs")]
    texts = [*kustom, chart(plane, "--set=jobs.enabled=true", *ON)]
    docs = [doc for text in texts for doc in yaml.safe_load_all(text) if doc]
    wanted = [doc for doc in docs if doc["kind"] in ("Deployment", "StatefulSet")]
    assert len(wanted) >= 9
    for doc in wanted:
        template, name = doc["spec"]["template"], doc["metadata"]["name"]
        owner = {"kind": "ReplicaSet", "name": name, "controller": True}
        pod = {**template, "metadata": {**template["metadata"], "name": name, "ownerReferences": [owner]}}
        assert len(sort_pods([pod], DrainRules()).evict) == 1, name
