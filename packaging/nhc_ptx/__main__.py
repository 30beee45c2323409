"""`python -m nhc_ptx [DIRECTORY]`: write the PTX of the GPU proof into nhc/core/data, or into DIRECTORY."""

import sys
from pathlib import Path

from nhc_ptx.compile import DATA, TEXTS, ptx

if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    for name in TEXTS:
        (directory / name).write_text(ptx(name))
        print(directory / name)
