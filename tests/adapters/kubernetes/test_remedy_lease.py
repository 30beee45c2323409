"""Who leads the remedy loop by a Lease of Kubernetes, on a real API server: one at a time, and nobody writes after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from nhc.core.settings.settings_file import SettingsError
from nhc.marks.ports.adapter import AdapterError
from nhc.remedy.remedy_file import parse
from nhc.store import holds
from nhc.store.errors import LeadershipLost
from nhc.store.rounds.leader import Leader
from nhc_adapters.kubernetes.api.candidate import LeaseCandidate
from tests.support.kube import Kube, environment
from tests.support.new_store import new_store
from tests.support.waiting import until
from tests.support.wire import Wire


@pytest.fixture
def made(kube: Kube, tmp_path: Path) -> Iterator[Any]:
    candidates = []

    def make(url: str = "") -> LeaseCandidate:
        folder = tmp_path / str(len(candidates))
        folder.mkdir()
        (folder / "kubeconfig").write_text(json.dumps(
            kube.plane.config(kube.plane.token, url, kube.namespace)))  # fmt: skip
        candidates.append(LeaseCandidate({"kubeconfig": str(folder / "kubeconfig"), "name": "loop"}))
        candidates[-1].lease.every = 0.2
        return candidates[-1]

    yield make
    for one in candidates:
        one.release()


def test_one_leads_and_the_next_takes_over_when_it_gives_up(made: Any, tmp_path: Path) -> None:
    store = new_store(str(tmp_path))
    one, two = Leader(store, made(), holder="one"), Leader(store, made(), holder="two")
    assert one.attempt()
    assert not two.attempt()
    assert (one.fence is not None, two.fence) == (True, None)
    before = one.fence
    one.release()
    until(two.attempt)
    assert two.fence is not None
    assert before is not None
    assert two.fence.number == before.number + 1
    with pytest.raises(LeadershipLost), store.write(before) as connection:
        holds.set_breaker(connection, "remedy", "open", by="one", why="late", now=1.0)
    store.close()


def test_who_is_cut_off_does_not_lead_for_longer_than_the_lease_is_renewed(
    kube: Kube, made: Any, tmp_path: Path
) -> None:
    store = new_store(str(tmp_path))
    with Wire(kube.plane) as wire:
        candidate = made(wire.url)
        candidate.lease.renew_within, candidate.lease.duration = 1.0, 2.0
        one, two = Leader(store, candidate, holder="one"), Leader(store, made(), holder="two")
        assert one.attempt()
        wire.down(True)
        until(lambda: one.fence is None, 60.0)
        with pytest.raises(AdapterError, match="loop"):
            one.attempt()
        until(two.attempt, 60.0)
    store.close()


def test_the_settings_name_who_decides() -> None:
    found = parse('[leader]\nby = "kubernetes-lease"\nnamespace = "x"').leader
    assert (found.by, dict(found.settings)) == ("kubernetes-lease", {"namespace": "x"})
    with pytest.raises(SettingsError, match="namespace"):
        parse('[leader]\nnamespace = "x"')
    with pytest.raises(AdapterError, match="nmae"):
        LeaseCandidate({"nmae": "x"})


def test_the_doctor_names_each_right_without_which_the_loop_never_leads(kube: Kube, tmp_path: Path) -> None:
    for name, token in (("admin", kube.plane.token), ("nobody", kube.token("default", kube.namespace))):
        (tmp_path / name).write_text(json.dumps(kube.plane.config(token, namespace=kube.namespace)))
    (tmp_path / "remedy.toml").write_text(f"""
store = "sqlite:///{tmp_path}/store.db"
[leader]
by = "kubernetes-lease"
name = "loop"
kubeconfig = "{tmp_path}/nobody"
[sources]
adapter = "kubernetes"
[sources.settings]
NHC_KUBECONFIG = "{tmp_path}/admin"
""")
    argv = [sys.executable, "-m", "nhc", "doctor", "remedy", "--settings", str(tmp_path / "remedy.toml")]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path, timeout=60
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED") and "  leader " in line]
    assert (done.returncode, len(failed)) == (1, 3), done.stdout + done.stderr
    for verb in ("create leases in", "get leases loop in", "update leases loop in"):
        assert any(f"leader kubernetes-lease: {verb} {kube.namespace}" in line for line in failed), failed
    assert all("without it this loop never leads" in line for line in failed)
