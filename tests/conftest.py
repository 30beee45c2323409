"""What every test shares: no core files from the crashes that tests provoke, how hard hypothesis tries, and that a
skip is a failure where everything must be there."""

import gc
import os
import re
import resource
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.kernel_log_lock import kernel_log_lock

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

EVERYTHING = os.environ.get("NHC_REQUIRE") == "all"


#: The real services, each a marker: which fixtures start it, or which folder's tests need it.
SERVICES = {
    "kubernetes": ("plane", "kube", "deep_plane"),
    "slurm": ("running_cluster", "cluster", "slurm_directory", "slurm", "hooked"),
    "sshd": ("server", "shared", "hostile", "mpi_fleet"),
    "systemd": ("machine", "machines"),
    "ansible": ("tests/ansible/",),
    "browser": ("browser",),
    "npd": ("npd",),
    "postgresql": ("postgresql",),
    "moto": ("moto",),
    "ipmi": ("simulator",),
    "intake": ("tests/store/server/", "pushed_to"),
}


def pytest_configure(config):
    """In the background a shell has its children ignore Ctrl-C, and theirs: tests send it, and expect what it does.

    `make quick` takes hypothesis's fewer examples, before a test's module that names its own number is loaded.
    """
    if config.getoption("part") == "quick":
        settings.load_profile("quick")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    path = os.environ.get("NHC_FAILED_TESTS")
    if path and not hasattr(config, "workerinput"):  # what fails in pytest-xdist's workers is told to the first process
        config.pluginmanager.register(FailedTests(path))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Collecting makes a million objects that stay: the garbage collector would walk them again and again, then and
    in every test after (Python's manual, gc.freeze). It halves what collecting costs."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


#: What is started or built once for all its tests, and so has one process of several (pytest-xdist's groups): the
#: longest first. Everything else is shared out by files. A name is a folder, a file, a session's fixture or a marker.
TOGETHER = {
    # What writes to the kernel's log, of which a machine has one, and the machines, which read it as their own.
    "kernel log": (
        "systemd",
        "tests/node/checks/test_kmsg.py",
        "tests/node/kernlog/test_sequences_kmsg.py",
        "tests/lab/drills/test_on_node.py",
        "tests/ansible/test_fleet_check.py",
    ),
    "slurm": ("running_cluster",),
    "packages": ("release",),
    "slurm's hooks": ("hooked",),
}


#: Long files whose tests share nothing: whichever process is free takes the next of them.
ONE_BY_ONE = ("tests/faults/test_matrix.py", "tests/remedy/test_properties.py")


#: What pytest-xdist puts behind a test's id: the group's name, `_together`'s.
GROUP = re.compile(rf"@(?:tests/.*|{'|'.join(TOGETHER)})$")


#: The parts of the suite (--part): `make quick` runs `quick`, `make test` runs `first` and then `slow`.
PARTS = {
    "quick": lambda item: not (item.get_closest_marker("slow") or item.get_closest_marker("thorough")),
    "first": lambda item: not item.get_closest_marker("slow"),
    "slow": lambda item: bool(item.get_closest_marker("slow")),
    "gpu": lambda item: bool(item.get_closest_marker("gpu")),
}


def pytest_addoption(parser):
    parser.addoption("--part", choices=[*PARTS], help="tests marked neither slow nor thorough; not slow; slow; gpu")


def _belongs(item, name):
    if "/" in name:
        return item.nodeid.startswith(name)
    fixtures = item._fixtureinfo.name2fixturedefs.get(name) if hasattr(item, "_fixtureinfo") else None
    return fixtures[-1].scope == "session" if fixtures else bool(item.get_closest_marker(name))


def _together(item):
    """The name of the group whose tests one process runs, and its place in the order."""
    for place, (group, members) in enumerate(TOGETHER.items()):
        if any(_belongs(item, one) for one in members):
            return place, group
    return len(TOGETHER), item.nodeid if item.nodeid.startswith(ONE_BY_ONE) else item.nodeid.partition("::")[0]


def _why(report):
    """The last error's message with its place, shortened: where only the end of a log is kept, this is in it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return " ".join(str(report.longrepr).split())[-600:]
    return " ".join(f"{os.path.basename(crash.path)}:{crash.lineno}: {crash.message}".split())[:600]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what needs a real service, and put last what is still being built on a fresh machine."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        for service, needed in SERVICES.items():
            if any(each in names or (each.endswith("/") and item.nodeid.startswith(each)) for each in needed):
                item.add_marker(service)
                item.add_marker("slow")
    part = config.getoption("part")
    chosen = PARTS.get(part, lambda _item: True)
    # What needs a real GPU runs where somebody asks for it by name: a machine without one cannot pass it.
    wanted = {id(item) for item in items if chosen(item) and (part == "gpu" or not item.get_closest_marker("gpu"))}
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in wanted])
        items[:] = [item for item in items if id(item) in wanted]
    built = [(item, [bool(item.get_closest_marker(service)) for service in ("npd", "kubernetes")]) for item in items]
    order = {id(item): (late, _together(item)[0] if part == "slow" else 0) for item, late in built}
    items.sort(key=lambda item: order[id(item)])
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_together(item)[1]))


def pytest_collection_finish(session):
    """Lost groups would start a service twice. pytest-xdist puts them into the tests' ids, which pytest 9.2 ignores."""
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("this pytest loses pytest-xdist's groups: pyproject.toml names another")


class FailedTests:
    """Names what fails as it fails, and why in one line, in the file that tests/suite.sh shows last; beside it, in
    PATH.ids, are the names alone, without pytest-xdist's groups: what is to be run again."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self._write("FAILED" if report.when == "call" else "ERROR", report)

    def pytest_collectreport(self, report):
        if report.failed:
            self._write("ERROR", report)

    def _write(self, how, report):
        with open(self.path, "a") as file:
            file.write(f"{how} {report.nodeid}: {_why(report)}\n")
        with open(f"{self.path}.ids", "a") as file:
            file.write(f"{GROUP.sub('', report.nodeid)}\n")


@pytest.fixture
def kernel_log_alone():
    """Tests that write a fault, or the end of every drill, into this machine's one kernel log take turns."""
    with kernel_log_lock():
        yield


def _skip_is_failure(report):
    """Under NHC_REQUIRE=all no test may skip, whatever it skipped by: `need`, a mark, an import."""
    if EVERYTHING and report.skipped and not hasattr(report, "wasxfail"):
        where = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped under NHC_REQUIRE=all: {where}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    _skip_is_failure(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    outcome = yield
    _skip_is_failure(outcome.get_result())


# Fifty examples find what this project's parsers get wrong; a busy machine is no failure. CI takes the same examples at
# every run, so that it fails for a change and not by chance; by hand they are other ones each time.
settings.register_profile(
    "nhc",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=EVERYTHING or bool(os.environ.get("CI")),
)
settings.register_profile("quick", settings.get_profile("nhc"), max_examples=10)
settings.load_profile("nhc")
