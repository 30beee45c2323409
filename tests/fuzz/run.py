"""`make fuzz MINUTES=N [SEED=S] [ONLY=NAME]`: generated inputs for every parser and output, for so long.

What fails is shrunk, printed and kept in tests/fuzz/corpus/, which the test suite tries again for good. A seed makes
the inputs the same again; without one each run has its own, which it prints.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")
BATCH = 500


def attempt(name, number, examples):
    """One batch; the smallest input that failed and its error, or None."""
    target = TARGETS[name]
    last = []

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    @given(target.inputs)
    def holds(value):
        last[:] = [value]
        target.holds(value)

    try:
        holds()
    except Exception as error:
        return last[0], error
    return None


def keep(name, value):
    """Put an input into the corpus; its file."""
    text = json.dumps({"target": name, "input": value}, indent=1) + "\n"
    path = CORPUS / f"{name.replace(' ', '-')}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}.json"
    path.write_text(text)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", choices=list(TARGETS))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    names = [options.only] if options.only else list(TARGETS)
    end = time.monotonic() + options.minutes * 60
    tried, failed, number = dict.fromkeys(names, 0), {}, options.seed
    while time.monotonic() < end and len(failed) < len(names):
        for name in names:
            if name in failed:
                continue
            examples = 10 if name == "recordings" else BATCH
            found = attempt(name, number, examples)
            tried[name] += examples
            if found:
                failed[name] = found
                print(f"{name}: {type(found[1]).__name__}: {found[1]}\n  input {found[0]!r}")
                print(f"  kept in {keep(name, found[0])}")
            if time.monotonic() > end:
                break
        number += 1
    print(", ".join(f"{name} {count}" for name, count in tried.items()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
