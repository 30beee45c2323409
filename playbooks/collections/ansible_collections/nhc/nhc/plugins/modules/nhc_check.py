#!/usr/bin/python
# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Judge the node by its nhc configuration and return the report."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nhc_check
short_description: Check the health of a node with nhc
version_added: 0.1.0
description:
  - Runs C(nhc check local) on the node and returns its report as facts.
  - Nothing has to be installed on the node but Python 3.9 or newer. Where the node has no nhc of the right version,
    the one-file archive C(nhc.pyz) is copied there once per version, kept in a directory that only the user who runs
    the task can write to, and its digest is verified before every use.
  - A sick node is a result, not a failed task, unless O(fail_on) says otherwise. So is a node on which nhc could not
    run, whose verdict is V(UNKNOWN) with the reason.
options:
  config:
    description:
      - Configuration files or directories that are on the node.
      - Without this and O(config_src), nhc reads C(/etc/nhc/nhc.conf), else its built-in default.
    type: list
    elements: path
    default: []
  config_src:
    description:
      - Configuration files or directories that are on the controller. They travel to the node, and are read instead
        of the node's own.
    type: list
    elements: path
    default: []
  scripts:
    description: Directories on the node that hold site checks (C(*.nhc)).
    type: list
    elements: path
    default: []
  scripts_src:
    description: Directories on the controller that hold site checks (C(*.nhc)). They travel to the node.
    type: list
    elements: path
    default: []
  profile:
    description: The node type's expectations to add. A profile's name, a file on the node, V(auto) or V(none).
    type: str
    default: auto
  checks:
    description: Run only checks of these names. Shell patterns work.
    type: list
    elements: str
    default: []
  tags:
    description: Run only checks with these tags, such as V(gpu), V(fs), V(net). Not to be confused with a task's tags.
    type: list
    elements: str
    default: []
  context:
    description: Run the lines of the configuration that are meant for this context.
    type: str
    choices: ['', healthcheck, prolog, epilog, agent]
    default: ''
  node:
    description:
      - The name that the configuration's targets are matched against, and that the report carries.
      - The kernel's host name where this is empty.
    type: str
    default: ''
  timeout:
    description: Seconds that the whole run may take on the node.
    type: int
    default: 60
  max_age:
    description: Use the node's last report of the same question when it is at most this many seconds old.
    type: int
  engine:
    description:
      - V(installed) uses the nhc that the node has, V(archive) the archive that is copied there.
      - V(auto) uses the node's own where it is of the archive's version, else the archive.
    type: str
    choices: [auto, installed, archive]
    default: auto
  archive:
    description:
      - The archive C(nhc.pyz) on the controller.
      - Where this is not set it is the file that E(NHC_PYZ) names, the one that the collection carries
        (C(files/nhc.pyz)), or one that is built from the checkout of nhc that the collection is part of.
    type: path
  directory:
    description:
      - Directory on the node in which archives are kept, private to the user who runs the task.
      - The default is C(/var/cache/nhc-ansible) for root and C(/var/tmp/nhc-ansible-UID) for others.
    type: path
  fail_on:
    description: The least verdict at which the task fails. With V(never) a sick node is a result like any other.
    type: str
    choices: [never, warn, unknown, crit]
    default: never
  bundles:
    description: Set by the action plugin. Digests of what has been, or may have to be, copied to the node.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode and return the same result without changing the node.
    support: full
    details:
      - In check mode nothing is kept on the node, neither the archive nor what checks remember from run to run.
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
notes:
  - Many checks need root. Use C(become) where the connection's user is another.
author:
  - The nhc authors (@nhc)
"""

EXAMPLES = r"""
- name: Judge every node by its own configuration
  nhc.nhc.nhc_check:
  register: health

- name: Judge them by a configuration of the controller, GPUs only
  nhc.nhc.nhc_check:
    config_src: [files/nhc.conf]
    tags: [gpu]

- name: Stop the play on nodes that should not be given work
  nhc.nhc.nhc_check:
    fail_on: crit

- name: Use what the report says
  ansible.builtin.debug:
    msg: "{{ nhc_report.results | selectattr('verdict', 'eq', 'CRIT') | map(attribute='message') }}"
  when: nhc_report.verdict == 'CRIT'
"""

RETURN = r"""
ansible_facts:
  description: The report, as the fact C(nhc_report).
  returned: always
  type: dict
  contains:
    nhc_report:
      description: The report in nhc's own form (C(docs/report.schema.json)).
      type: dict
      returned: always
      sample:
        schema: 1
        version: 0.1.0
        host: gpu128
        verdict: CRIT
        results:
          - check: check_gpu_xid
            verdict: CRIT
            reason: GpuXid79
            message: 'GPU has fallen off the bus'
            target: gpu3
            action: reboot
verdict:
  description: The worst verdict of the report.
  returned: always
  type: str
  sample: OK
healthy:
  description: Whether the node can be given work. True for V(OK) and V(WARN).
  returned: always
  type: bool
summary:
  description: One line about each result that is not OK or skipped.
  returned: always
  type: list
  elements: str
  sample: ['CRIT check_gpu_xid gpu3: GPU has fallen off the bus']
actions:
  description: What would repair the faults, each once, in the report's order.
  returned: always
  type: list
  elements: str
  sample: [reboot]
engine:
  description: What judged the node, V(installed) or V(archive). Empty where nothing could.
  returned: always
  type: str
  sample: archive
exit_status:
  description: The exit status of nhc. 0 healthy, 1 unhealthy, 3 unknown.
  returned: where nhc ran
  type: int
"""

import json
import os
import shutil
import sys
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nhc.nhc.plugins.module_utils.bundles import Missing, NoRun, bundle, cache_directory, unpack
from ansible_collections.nhc.nhc.plugins.module_utils.process import Overdue, run_until
from ansible_collections.nhc.nhc.plugins.module_utils.report import VERDICTS, describe, not_run

SBIN = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/nhc/bin")
GRACE = 15  # seconds beyond nhc's own deadline, after which it is ended from outside


def installed():
    """The node's own nhc and its version; empty where it has none."""
    for directory in os.environ["PATH"].split(":"):
        path = directory + "/nhc"
        if directory.startswith("/") and os.access(path, os.X_OK) and not os.path.isdir(path):
            status, out, _err = run([path, "--version"], 20)
            words = out.split()
            if status == 0 and len(words) == 2 and words[0] == "nhc":
                return path, words[1]
    return "", ""


def interpreter():
    """A Python that can run the archive: the one that runs this module, else the newest there is."""
    if sys.version_info >= (3, 9):
        return sys.executable
    for minor in range(20, 8, -1):
        for directory in os.environ["PATH"].split(":"):
            path = "%s/python3.%d" % (directory, minor)
            if os.access(path, os.X_OK):
                return path
    raise NoRun("OldPython", "Python %d.%d is too old: nhc needs 3.9" % tuple(sys.version_info[:2]))


def run(argv, seconds, environ=None):
    """Run a command. Raises NoRun where it does not end in time."""
    try:
        return run_until(argv, seconds, environ)
    except Overdue:
        raise NoRun("Timeout", "%s did not end within %d s" % (os.path.basename(argv[0]), seconds))


def choose(params, place, check_mode):
    """The command that starts nhc, and whether it is V(installed) or V(archive)."""
    wanted = params["bundles"].get("archive")
    if params["engine"] != "archive":
        path, version = installed()
        if path and (params["engine"] == "installed" or not wanted or version == wanted["version"]):
            return [path], "installed"
        if params["engine"] == "installed":
            raise NoRun("NotInstalled", "this node has no nhc of its own")
    if not wanted:
        raise NoRun("NotInstalled", "this node has no nhc of its own, and the controller has no archive to copy")
    python = interpreter()
    return [python, "-I", "-S", bundle("archive", wanted, place, check_mode)], "archive"


def arguments(params, site):
    """The options of `nhc check local`."""
    config, scripts = list(params["config"]), list(params["scripts"])
    wanted = params["bundles"].get("site") or {}
    config += ["%s/%s" % (site, name) for name in wanted.get("config", [])]
    scripts += ["%s/%s" % (site, name) for name in wanted.get("scripts", [])]
    argv = ["check", "local", "--all", "--format", "json", "--profile", params["profile"]]
    argv += ["--timeout", "%ds" % params["timeout"]]
    for flag, values in (
        ("-c", config),
        ("--scripts", scripts),
        ("--check", params["checks"]),
        ("--tag", params["tags"]),
    ):
        for value in values:
            argv += [flag, value]
    for flag, value in (("--context", params["context"]), ("--node", params["node"])):
        if value:
            argv += [flag, value]
    if params["max_age"] is not None:
        argv += ["--max-age", "%ds" % params["max_age"]]
    return argv


def judge(params, scratch, check_mode):
    """Run nhc. Returns the report, the engine and the exit status. Raises Missing, NoRun."""
    place = cache_directory(params["directory"]) if params["bundles"] and not check_mode else scratch
    wanted = params["bundles"].get("site")
    missing = []
    command, how, site = [], "", ""
    try:
        command, how = choose(params, place, check_mode)
    except Missing as error:
        missing += error.names
    if wanted:
        try:
            site = scratch + "/site"
            os.mkdir(site, 0o700)
            unpack(bundle("site", wanted, place, check_mode), site)
        except Missing as error:
            missing += error.names
    if missing:
        raise Missing(missing)
    environ = dict(os.environ)
    if check_mode:
        environ["NHC_STATE_DIR"] = scratch + "/state"
        ours = os.environ.get("NHC_STATE_DIR") or "/run/nhc"
        if os.geteuid() == 0 and os.path.isdir(ours):  # what is remembered is read, and what is learned forgotten
            shutil.copytree(ours, environ["NHC_STATE_DIR"])
    # The system's messages in plain C are what checks parse.
    environ.update(LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    status, out, err = run(command + arguments(params, site), params["timeout"] + GRACE, environ)
    if status == 2:
        said = err.strip().split("\n")
        raise NoRun("BadConfiguration", said[0] + (" (and %d more)" % (len(said) - 1) if len(said) > 1 else ""))
    try:
        report = json.loads(out)
        if report["verdict"] not in VERDICTS or not isinstance(report["results"], list):
            raise ValueError(report["verdict"])
    except (ValueError, KeyError, TypeError):
        last = (err.strip() or out.strip() or "nothing").split("\n")[-1]
        raise NoRun("NoReport", "nhc ended with status %d and said: %s" % (status, last[:300]))
    return report, how, status


def main():
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "list", "elements": "path", "default": []},
            "config_src": {"type": "list", "elements": "path", "default": []},
            "scripts": {"type": "list", "elements": "path", "default": []},
            "scripts_src": {"type": "list", "elements": "path", "default": []},
            "profile": {"type": "str", "default": "auto"},
            "checks": {"type": "list", "elements": "str", "default": []},
            "tags": {"type": "list", "elements": "str", "default": []},
            "context": {"type": "str", "default": "", "choices": ["", "healthcheck", "prolog", "epilog", "agent"]},
            "node": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 60},
            "max_age": {"type": "int"},
            "engine": {"type": "str", "default": "auto", "choices": ["auto", "installed", "archive"]},
            "archive": {"type": "path"},
            "directory": {"type": "path"},
            "fail_on": {"type": "str", "default": "never", "choices": ["never", "warn", "unknown", "crit"]},
            "bundles": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params = module.params
    path = os.environ.get("PATH", "").split(":")
    os.environ["PATH"] = ":".join([name for name in path if name] + [name for name in SBIN if name not in path])
    result = {"changed": False, "engine": ""}
    scratch = tempfile.mkdtemp(prefix="nhc-", dir=module.tmpdir)
    try:
        report, result["engine"], result["exit_status"] = judge(params, scratch, module.check_mode)
    except Missing as error:
        module.exit_json(changed=False, missing=error.names)
    except NoRun as error:
        report = not_run(params["node"] or os.uname()[1], error.reason, str(error))
    except OSError as error:
        report = not_run(params["node"] or os.uname()[1], "NodeError", "%s: %s" % (error.filename, error.strerror))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    result.update(describe(report))
    least = VERDICTS.index(params["fail_on"].upper()) if params["fail_on"] != "never" else len(VERDICTS)
    if VERDICTS.index(result["verdict"]) >= least:
        module.fail_json(msg="; ".join(result["summary"]) or "verdict %s" % result["verdict"], **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
