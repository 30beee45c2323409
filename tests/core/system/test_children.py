"""Room is seen where it is, and where the system's limit leaves none; a command that needs it says so."""

import resource
import subprocess
import sys

from nhc.core.system.children import has_address_space

LIMIT = """
import resource, sys
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (20 << 20),) * 2)
from nhc.core.system.children import has_address_space
print(has_address_space(4 << 20), has_address_space(64 << 20))
from nhc.cli.main import main
sys.exit(main(["status", "store", "--store", "/nonexistent/store.db"]))
"""


def test_there_is_room_here():
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert has_address_space(64 << 20)


def test_under_a_limit_the_command_ends_in_one_line():
    done = subprocess.run([sys.executable, "-c", LIMIT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "True False\n")
    assert done.stderr == "nhc store: needs 64 MB more of address space than it has (ulimit -v)\n"
