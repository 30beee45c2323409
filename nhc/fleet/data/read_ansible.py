"""Run by nhc.fleet.node_sources in a process of its own: prints an Ansible inventory's hosts as JSON.

    python read_ansible.py LIMIT FACTS INVENTORY ...

Ansible itself reads the inventory, with its configuration, plugins, vault and templates. It is loaded here and not
in the sweep's process, which it would make 60 MB larger and whose shards would inherit that.
"""

import json
import sys

WANTED = (
    "ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user", "ansible_ssh_user",
    "ansible_connection", "ansible_ssh_private_key_file", "ansible_private_key_file", "ansible_python_interpreter",
    "ansible_become", "ansible_become_method", "ansible_become_user", "ansible_become_password",
    "ansible_become_pass", "ansible_sudo_pass", "ansible_password", "ansible_ssh_pass",
    "ansible_ssh_common_args", "ansible_ssh_extra_args",
)  # fmt: skip


def main(limit, sources, facts, vault):
    from ansible.cli.inventory import InventoryCLI
    from ansible.template import Templar

    argv = ["ansible-inventory", "--list", *vault]
    for source in sources:
        argv += ["-i", source]
    if limit:
        argv += ["--limit", limit]
    cli = InventoryCLI(argv)
    cli.parse()
    loader, inventory, variables = cli._play_prereqs()
    inventory.subset(limit or None)
    for host in inventory.get_hosts("all"):
        plain = {}
        problem = ""
        every = variables.get_vars(host=host, include_hostvars=False)
        templar = None
        for name in (*WANTED, *facts):
            value = every.get(name)
            if value is None:
                continue
            if isinstance(value, str) and ("{{" in value or "{%" in value):
                templar = templar or Templar(loader=loader, variables=every)
                try:
                    value = templar.template(value)
                except Exception as error:
                    problem = "%s: %s" % (name, error)
                    continue
            plain[name] = value if isinstance(value, (bool, int)) else str(value)
        groups = [group.name for group in host.get_groups() if group.name not in ("all", "ungrouped")]
        print(json.dumps({"name": host.name, "vars": plain, "groups": sorted(groups), "problem": problem}))


if __name__ == "__main__":
    from ansible.errors import AnsibleError

    try:
        main(**json.loads(sys.argv[1]))
    except AnsibleError as error:  # a vault's password that is missing or wrong
        sys.exit("ERROR! %s" % " ".join(str(error).split()))
