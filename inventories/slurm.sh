#!/bin/sh
# An Ansible inventory from Slurm: every node, in a group a partition (part_gpu) and a group a state (state_idle).
#
#   ansible-playbook playbooks/fleet-check.yml -i inventories/slurm.sh --limit part_gpu
#
# Ansible calls it with --list; host variables come with it, so --host has nothing to add.
set -eu
if [ "${1:-}" != --list ]; then
  echo '{}'
  exit 0
fi
sinfo --noheader --Node --Format=NodeHost:200,PartitionName:200,StateCompact:50 | awk '
  function word(text) { gsub(/[^A-Za-z0-9_]/, "_", text); return text }
  function add(group, node) {
    if ((group, node) in seen) return
    seen[group, node] = 1
    members[group] = members[group] (members[group] ? "," : "") "\"" node "\""
  }
  $1 ~ /^[A-Za-z0-9._-]+$/ { add("part_" word($2), $1); sub(/[^a-z]+$/, "", $3); add("state_" word($3), $1) }
  END {
    printf "{\"_meta\": {\"hostvars\": {}}"
    for (group in members) printf ", \"%s\": {\"hosts\": [%s]}", group, members[group]
    print "}"
  }'
