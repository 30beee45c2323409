#!/usr/bin/env bash
# Runs a command on a clone of this checkout in a minimal root, where nothing is installed beforehand but make, git and
# certificates: what happens to be installed on this machine proves nothing there. Needs root on Debian or Ubuntu.
#
#   tests/fresh/run.sh [--suite bookworm] [--with DIR]... COMMAND [WORD...]
#
# Only commits are cloned. --with copies a directory of this machine to the same path in the root (a built control plane).
# The root is removed afterwards. The exit status is the command's, or 2 where no root can be made.
set -euo pipefail
suite=bookworm with=()
while [ "${1:-}" ]; do
  case $1 in
    --suite) suite=$2; shift 2 ;;
    --with) with+=("$2"); shift 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "usage: ${0##*/} [--suite NAME] [--with DIR]... COMMAND [WORD...]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "${0##*/}: a minimal root can be made by root only" >&2; exit 2; }
here=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v mmdebstrap >/dev/null; then
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap; } >/dev/null ||
    { echo "${0##*/}: mmdebstrap is missing and cannot be installed" >&2; exit 2; }
fi

base=$(mktemp -d /var/tmp/nhc-fresh.XXXXXX)
root=$base/root
trap 'rm -rf --one-file-system "$base"' EXIT
mmdebstrap --quiet --dpkgopt=force-unsafe-io --variant=minbase --include=make,git,ca-certificates "$suite" "$root" 2>"$base/log" ||
  { cat "$base/log" >&2; echo "${0##*/}: mmdebstrap cannot make a root of $suite" >&2; exit 2; }

echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/thrown-away"  # nothing in it has to outlive a power cut
# How this machine reaches its package sources is no part of what is proved: resolver, certificates, indexes.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"  # daemons ask for this host by its name
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.config/go/env" /etc/apt/apt.conf.d/*proxy*; do
  [ ! -f "$file" ] || install -D -m 644 "$file" "$root/${file/#$HOME//root}"
done
for directory in "${with[@]}"; do
  mkdir -p "$root$(dirname "$directory")" && cp -a "$directory" "$root$directory"
done
keep=()
while IFS= read -r name; do keep+=("$name=${!name}"); done < <(compgen -e |
  grep -E '^(PIP_(CERT|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|DEFAULT_TIMEOUT)|GO(PROXY|SUMDB|NOSUMDB|PRIVATE)|SSL_CERT_FILE|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|NHC_REQUIRE|PYTEST_ARGS)$' || true)
git clone --quiet --no-hardlinks "$here" "$root/root/nhc"

# Mounts of a namespace of their own end with it, whatever becomes of the command.
unshare --mount --propagation private bash -c '
  set -e
  root=$1; shift
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
' fresh "$root" "${keep[@]}" bash -c 'cd /root/nhc && exec "$@"' fresh "$@"
