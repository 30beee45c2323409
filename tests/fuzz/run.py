"""`make fuzz MINUTES=N [SEED=S] [ONLY=NAME]`: generated inputs for every parser and output, for so long.

`make fuzz CASES=N [SEED=S] [ONLY=NAME]` tries each reader of what other programs say (tests/fuzz/foreign.py) so many
times, in as many processes as there are processors.

What fails is shrunk, printed and kept in tests/fuzz/corpus/, which the test suite tries again for good. A seed makes
the inputs the same again; without one each run has its own, which it prints.
"""

import argparse
import concurrent.futures
import hashlib
import json
import random
import sys
import time
import traceback
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz import foreign
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


def try_reader(name, first, cases):
    """How many answers of another shape a reader held, and what it failed on: the error, its place, the seed."""
    failed = {}
    for number in range(first, first + cases):
        said = foreign.text(foreign.READERS[name], random.Random(number))
        try:
            foreign.holds(name, said)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failed.setdefault(f"{type(error).__name__}: {str(error)[:100]} ({place.filename}:{place.lineno})", number)
    return name, failed


def try_readers(names, first, cases):
    """Exit status: 1 where any failed."""
    bad = 0
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for name, failed in pool.map(try_reader, names, [first] * len(names), [cases] * len(names)):
            bad += bool(failed)
            print(f"{name}: {cases} cases, {len(failed)} kinds of failures", flush=True)
            for what, seed in failed.items():
                print(f"  {what}, seed {seed}: {foreign.text(foreign.READERS[name], random.Random(seed))[:300]!r}")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", choices=[*TARGETS, *foreign.READERS])
    parser.add_argument("--cases", type=int)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.cases:
        names = [name for name in foreign.READERS if options.only in (None, name)]
        sys.exit(try_readers(names, options.seed, options.cases))
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
