#!/bin/sh
# Make the collection nhc.nhc as it is published, or try it with ansible-test:
#
#   playbooks/collection.sh build [DIRECTORY]     nhc-nhc-VERSION.tar.gz into DIRECTORY (dist)
#   playbooks/collection.sh sanity [OPTION ...]   ansible-test sanity; the options are ansible-test's (--test NAME ...)
#
# What is published is the collection of this checkout, and what it takes from beside it there: the archive that is
# copied to nodes, and the role of Slurm's hooks with its wrappers. PYTHON builds the archive (python3): it needs
# click and nvidia-ml-py. See docs/decisions/0011-ansible-layout.md.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/ansible_collections/nhc/nhc
mkdir -p "$work/ansible_collections/nhc"
cp -R "$root/playbooks/collections/ansible_collections/nhc/nhc" "$tree"
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
cp -R "$root/playbooks/roles/nhc_slurm_hooks" "$tree/roles/"
mkdir -p "$tree/roles/nhc_slurm_hooks/files"
cp "$root"/adapters/slurm/*.sh "$tree/roles/nhc_slurm_hooks/files/"
sed -i "s#{{ role_path }}/../../../adapters/slurm#{{ role_path }}/files#" "$tree/roles/nhc_slurm_hooks/defaults/main.yml"
case ${1:-} in
build)
    out=${2:-$root/dist}
    mkdir -p "$out" "$tree/files"
    (cd "$root" && PYTHONPATH="$root:$root/adapters" "${PYTHON:-python3}" -m nhc.core.archive.build "$tree/files/nhc.pyz")
    ansible-galaxy collection build --force --output-path "$out" "$tree"
    ;;
sanity)
    shift
    git init -q "$tree" # ansible-test asks git what belongs to the collection
    cd "$tree"
    ansible-test sanity --local --color no "$@"
    ;;
*)
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
