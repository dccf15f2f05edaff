"""Prints the table of calls, a JSON object per line on standard input, and checks the share of answers."""

import json
import sys

SHARE = 0.9
NEEDS = {"model": "a language model", "platform": "mem0's platform", "users": "memories of several users"}


def main() -> int:
    calls = [json.loads(line) for line in sys.stdin]
    for call in calls:
        needs = f", needs {NEEDS[call['needs']]}" if call["needs"] in NEEDS else ""
        print(f"{call['client']:10}  {call['call']:52}  {call['ended']}{needs}")
    bad = [call for call in calls if call["ended"].startswith("failed")]
    bad += [call for call in calls if call["needs"] in NEEDS and not call["ended"].startswith("refused")]
    print()
    is_short = False
    for client in dict.fromkeys(call["client"] for call in calls):
        own = [call for call in calls if call["client"] == client]
        counted = [call for call in own if not call["needs"]]
        answered = sum(call["ended"] == "answered" for call in counted)
        share = answered / len(counted)
        is_short |= share < SHARE
        others = {need: sum(call["needs"] == need for call in own) for need in NEEDS}
        print(
            f"{client}: {answered} of {len(counted)} calls answered that need none of these ({share:.0%}); refused by "
            "name: " + ", ".join(f"{others[need]} that need {what}" for need, what in NEEDS.items())
        )
    if len({call["client"] for call in calls}) != 3:
        print("a client is missing", file=sys.stderr)
        return 1
    return int(bool(bad) or is_short)


if __name__ == "__main__":
    sys.exit(main())
