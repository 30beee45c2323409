# Copyright the nhc authors
# SPDX-License-Identifier: Apache-2.0
"""Hand what nhc_check registered on the hosts of a run to one of nhc's adapters, by the policy."""

from __future__ import annotations


from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.nhc.nhc.plugins.plugin_utils.controller import Unavailable, import_nhc
from ansible_collections.nhc.nhc.plugins.plugin_utils.fold import Findings, registered

ARGUMENTS = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "variable": {"type": "str", "default": "nhc_health"},
    "adapter": {"type": "str", "required": True},
    "apply": {"type": "bool", "default": False},
    "policy": {"type": "path"},
    "ledger": {"type": "path"},
}


class ActionModule(ActionBase):
    """Runs on the controller and needs no connection."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _spec, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        apply = args["apply"] and not self._task.check_mode
        try:
            reports = registered(args["hosts"], args["variable"], task_vars["hostvars"])
            done, states = self._sync(args, Findings(reports, own_names=True), apply)
            lines = import_nhc("nhc.fleet.mark").lines_of(done, args["adapter"])
        except Unavailable as error:
            raise AnsibleActionFail(str(error)) from None
        operations = done.operations
        result.update(
            changed=bool(operations) and not done.dry_run,
            dry_run=done.dry_run,
            lines=lines,
            nodes={state.name: _shown(state) for state in states},
            remedies=[
                {"node": each.node, "deed": each.operation.value, "because": each.because} for each in operations
            ],
        )
        if done.failed:
            result.update(failed=True, msg="%d of %d could not be done" % (len(done.failed), len(operations)))
        return result

    def _sync(self, args, findings, apply):
        """One round of the policy over these reports. Raises Unavailable, AnsibleActionFail."""
        policy_file, sync = import_nhc("nhc.marks.policy.policy_file"), import_nhc("nhc.marks.policy.reconcile")
        ledger, ports, registry = (
            import_nhc("nhc.marks.policy.ledger"),
            import_nhc("nhc.marks.ports.adapter"),
            import_nhc("nhc.marks.plugins"),
        )
        judged = [
            result.report
            for result in findings.results
            if not all(each.check == "nhc_fleet" for each in result.report.results)
        ]
        try:
            policy = policy_file.policy_of(args["policy"]).policy
            marker = registry.adapter(args["adapter"])()
            if not hasattr(marker, "mark"):
                raise AnsibleActionFail("adapter %s knows nodes but cannot mark them" % args["adapter"])
            remembered = ledger.Ledger(args["ledger"], "ansible nhc_mark")
            # Reboots are for remediate.yml to do, where it was asked for.
            done = sync.sync(marker, judged, policy._replace(repairs=frozenset()), remembered, apply=apply)
            known = [state.name for state in marker.nodes()]
            return done, marker.nodes(sorted(sync.by_node(judged, known))) if judged else []
        except (
            registry.NoAdapter,
            ports.AdapterError,
            ledger.LedgerError,
            ValueError,
        ) as error:
            raise AnsibleActionFail("%s: %s" % (args["adapter"], error)) from None


def _shown(state):
    """What the scheduler says of a node, as a play needs it."""
    return {
        "state": state.shown,
        "out": not state.available,
        "busy": state.busy,
        "ours": state.mark is not None and state.mark.ours,
        "reason": state.mark.why if state.mark is not None else "",
        "hold": state.hold,
    }
