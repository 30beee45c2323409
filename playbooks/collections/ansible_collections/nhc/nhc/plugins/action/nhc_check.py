# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's half of nhc_check: offer the archive and the site's configuration, copy what the node lacks."""

from __future__ import annotations

import os
import re
import tempfile

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.nhc.nhc.plugins.module_utils.report import describe, not_run
from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import (
    Unavailable,
    digest_of,
    find_archive,
    found_by_ansible,
    local_path,
    pack_site,
    version_of,
)

_CLOSED = re.compile(r"Shared connection to .* closed\.?$")


class ActionModule(ActionBase):
    """Run the module; where it asks for bundles, copy them and run it again."""

    TRANSFERS_FILES = True
    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        args = dict(self._task.args)
        if "bundles" in args:
            raise AnsibleActionFail("bundles is set by the action plugin, not by a task")
        sources = {}
        try:
            args["bundles"] = self._bundles(args, sources)
            result = self._on_node(args, sources, task_vars)
        except Unavailable as error:
            raise AnsibleActionFail(str(error)) from None
        finally:
            for path, ours in sources.values():
                if ours:
                    os.unlink(path)
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return self._judged(result, args, task_vars)

    def _on_node(self, args, sources, task_vars):
        """Run the module there, a second time with what it lacked; what it says, or why it could not be run."""
        try:
            result = self._execute_module(module_name="nhc.nhc.nhc_check", module_args=args, task_vars=task_vars)
            if result.get("missing"):
                self._copy(result["missing"], args["bundles"], sources)
                result = self._execute_module(module_name="nhc.nhc.nhc_check", module_args=args, task_vars=task_vars)
            return result
        except (AnsibleConnectionFailure, AnsibleActionFail):
            raise
        except AnsibleError as error:  # the node takes no file: its disk is full, or read-only
            return {"msg": str(error)}

    def _bundles(self, args, sources):
        """Digests of what may have to be copied; `sources` says where each is and whether it is ours to remove."""
        bundles = {}
        if args.get("engine", "auto") != "installed":
            path = find_archive(self._local(args.get("archive")))
            if path:
                sources["archive"] = (path, False)
                bundles["archive"] = {"digest": digest_of(path), "version": version_of(path)}
        config, scripts = self._locals(args, "config_src"), self._locals(args, "scripts_src")
        if config or scripts:
            data, names = pack_site(config, scripts)
            with tempfile.NamedTemporaryFile(prefix="nhc-site-", delete=False) as file:
                file.write(data)
            sources["site"] = (file.name, True)
            bundles["site"] = dict(names, digest=digest_of(file.name))
        return bundles

    def _local(self, path):
        return local_path(path, lambda name: found_by_ansible(self, name)) if path else path

    def _locals(self, args, name):
        found = args.get(name) or []
        return [self._local(path) for path in ([found] if isinstance(found, str) else found)]

    def _copy(self, missing, bundles, sources):
        """Put the bundles into Ansible's temporary directory on the node, from where the module takes them."""
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        copied = []
        for name in missing:
            remote = self._connection._shell.join_path(self._connection._shell.tmpdir, "nhc-%s" % name)
            self._transfer_file(sources[name][0], remote)
            bundles[name]["copied"] = remote
            copied.append(remote)
        self._fixup_perms2([self._connection._shell.tmpdir, *copied], execute=False)

    def _judged(self, result, args, task_vars):
        """The module's result; where it could not run, a verdict of UNKNOWN that says why."""
        if "verdict" in result or result.get("unreachable") or result.get("skipped"):
            return result
        message = self._complaint(result)
        if message.startswith(("Unsupported parameters", "argument ", "value of ", "missing required")):
            return result  # the task is wrong, not the node
        name = args.get("node") or task_vars.get("inventory_hostname", "")
        if "No space left on device" in message or "Disk quota exceeded" in message:
            # In one's own words, which are the same for every such node.
            report = not_run(name, "DiskFull", "no room for Ansible's own files (ansible_remote_tmp)")
        else:
            report = not_run(name, "ModuleFailed", " ".join(message.split())[:500])
        judged = dict(describe(report), changed=False, engine="")
        if str(args.get("fail_on", "never")) in ("warn", "unknown"):
            judged.update(failed=True, msg=message)
        return judged

    def _complaint(self, result):
        """What went wrong, on one line, from wherever Ansible put it."""
        if result.get("missing"):
            return "%s could not be read on the node by the user who runs the check" % ", ".join(result["missing"])
        message = str(result.get("msg") or "").strip()
        event = getattr(result.get("exception"), "event", None)  # since ansible-core 2.19
        while event is not None and not message:
            message = str(getattr(event, "msg", "") or "").strip()
            event = getattr(getattr(event, "chain", None), "event", None)
        # On a terminal of the node everything is standard output, and ssh says behind it that it has closed.
        for said, place in ((result.get("module_stderr"), -1), (result.get("module_stdout"), 0)):
            lines = [line.strip() for line in str(said or "").splitlines() if line.strip() and not _CLOSED.match(line)]
            if lines:
                return "%s (%s)" % (message, lines[-1 if lines[0].startswith("Traceback") else place])
        return message or "the module gave no result"
