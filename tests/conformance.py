"""Checks that the tests of processors/published/CONFORMANCE.md ran and passed.

Usage: conformance.py short|long LONG-LIST LOG...

LONG-LIST is the list of the long scenarios (`--list`), and the LOGs are what the steps printed.
`make test` (short) must have run all named tests but those, `make test-long` (long) those.
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "processors/published/CONFORMANCE.md"


def names(paths):
    """The functions of these paths. A macro may add a module for each broker."""
    return {part for path in paths for part in path.split("::")}


def main(which, long_list, *logs):
    named = set(re.findall(r"`(\w+)`", re.sub(r"(?s)^.*?\n## ", "", PAGE.read_text())))
    printed = "\n".join(Path(log).read_text() for log in logs)
    passed = set(re.findall(r"^test (\S+) \.\.\. ok$", printed, re.M))
    skipped = re.findall(r"SKIPPED \(number \d+ of this run\) (?:integration::)?([\w:]+?): ", printed)
    long = names(re.findall(r"^(\S+): test$", Path(long_list).read_text(), re.M))
    wanted = named & long if which == "long" else named - long
    missing = sorted(wanted - names(passed - set(skipped)))
    if missing or not wanted:
        sys.exit(f"named in {PAGE.name}, and not run and passed: {', '.join(missing) or 'none'}")
    print(f"{len(wanted)} of {len(named)} tests named in {PAGE.name} ran and passed here")


main(*sys.argv[1:])
