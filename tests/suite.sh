#!/usr/bin/env bash
# The tests in two parts, each shared by processes: what starts no service, then what does. Their files are in memory.
#
#   tests/suite.sh quick|whole [PYTEST ARGUMENT...]
#
# quick is the first part without the tests marked thorough, with fewer generated examples. The first part has one process
# more than there are cores: its tests wait for deadlines a third of their time.
# The second part runs whatever became of the first. Where at most five tests fail, they run once more, by themselves: two
# thousand tests wait for real services, and one of them for a moment that does not come again. What passes only then is
# named as well, to be mended. The last lines name what failed; the exit status is 1 then.
# JOBS=N: that many processes. PYTHON: the interpreter that has pytest.
set -uo pipefail
what=${1:-}
[ "$what" = quick ] || [ "$what" = whole ] || { echo "usage: ${0##*/} quick|whole [PYTEST ARGUMENT...]" >&2; exit 2; }
shift
cd "$(dirname "$0")/.." || exit 2
python=${PYTHON:-.venv/bin/python} jobs=${JOBS:-2} memory='' failed=$(mktemp) || exit 2
trap 'rm -rf "$failed" "$failed.ids" ${memory:+"$memory"}' EXIT
trap 'exit 130' INT TERM
export NHC_FAILED_TESTS=$failed
broken=0 # 1 where pytest did not come to its end
first=first show=()
[ "$what" = whole ] || first=quick show=(--durations=10 --durations-min=0.3) # what should be thorough

# Hundreds of tests start nhc: each would compile what it imports where nothing compiled is kept.
# The tests' own compiled files are kept too: without them half of collecting is to compile assertions again.
"$python" -m compileall -q nhc adapters
export PYTHONDONTWRITEBYTECODE=

# Tests write a hundred thousand small files, and a disk takes ten times as long for them; and a database's commit waits
# for it. The path is short because a socket's has at most 107 bytes; other users' processes enter it; programs are
# started from it.
room=$(df --output=avail -B1M /dev/shm 2>/dev/null | tail -n1)
if [ "${room:-0}" -ge 1024 ] 2>/dev/null && memory=$(mktemp -d -p /dev/shm q.XXXX); then
  if ! { chmod 755 "$memory" && printf '#!/bin/sh\n' >"$memory/try" && chmod 755 "$memory/try" && "$memory/try"; } 2>/dev/null; then
    rm -rf "$memory" && memory=''
  fi
fi

part() { # part NAME MEGABYTES PYTEST-ARGUMENT...: with its files in memory where there is so much room
  local name=$1 status
  if [ -n "$memory" ] && [ "$room" -ge "$2" ]; then
    shift 2
    mkdir -p "$memory/t" && TMPDIR=$memory/t "$python" -m pytest -q --part "$name" --basetemp="$memory/p" "$@"
  else
    shift 2
    "$python" -m pytest -q --part "$name" "$@"
  fi
  status=$?
  [ $status -ne 5 ] || return 0
  [ $status -le 1 ] || broken=1
  [ $status -eq 0 ] || echo "the $name part: pytest ended with status $status" >>"$failed"
}

part "$first" 1024 -n $((jobs + 1)) --dist loadfile "${show[@]}" "$@"
# What starts a service waits for it half of its time: two processes more than there are cores to keep busy.
# In the order of collecting: what is started or built once for all its tests first (TOGETHER in tests/conftest.py).
[ "$what" = quick ] || part slow 4096 -n $((jobs + 2)) --dist loadgroup --no-loadscope-reorder "$@"

[ -s "$failed" ] || exit 0
mapfile -t again < <(sort -u "$failed.ids" 2>/dev/null)
if [ "$what" = whole ] && [ $broken = 0 ] && [ ${#again[@]} -ge 1 ] && [ ${#again[@]} -le 5 ]; then
  echo "Once more, by themselves: ${#again[@]}"
  if NHC_FAILED_TESTS='' "$python" -m pytest -q -n 0 "${again[@]}"; then
    echo "Passed at the second try only:"
    sort -u "$failed"
    exit 0
  fi
fi
echo "Not everything passed:"
sort -u "$failed"
exit 1
