#!/usr/bin/env python3
"""Loads every dashboard of this folder with Grafana's own types, and fails if a value gets lost.

The loader of Grafana's foundation SDK skips what it does not know, as Grafana itself does: it never
draws a panel that stands among the queries of another one, and reports no error. So each dashboard is
loaded and written again, and every value of the file must be in the result. Defaults may be added.

    check.sh                installs the SDK of requirements.txt and runs this
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(before, after, path=""):
    """Lists the places at which `after` lacks something of `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key, value in before.items():
            place = f"{path}/{key}"
            found += lost(value, after[key], place) if key in after else [place]
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            place
            for n, (one, other) in enumerate(zip(before, after))
            for place in lost(one, other, f"{path}/{n}")
        ]
    return [] if before == after else [path]


def main():
    register_default_plugins()
    folder = pathlib.Path(__file__).parent
    dashboards = sorted(folder.glob("*.json"))
    failed = False
    uids = set()
    for file in dashboards:
        before = json.loads(file.read_text())
        written = JSONEncoder(sort_keys=True).encode(Dashboard.from_json(before))
        places = [f"{place} is lost" for place in lost(before, json.loads(written))]
        ids = [panel["id"] for panel in before["panels"]]
        if len(ids) != len(set(ids)):
            places.append("two panels have the same id")
        if before["uid"] in uids:
            places.append("another dashboard has the same uid")
        uids.add(before["uid"])
        for place in places:
            print(f"{file.name}: {place}", file=sys.stderr)
        print(f"{file.name}: {len(ids)} panels, {'not loaded' if places else 'loaded'}")
        failed |= bool(places)
    if not dashboards:
        sys.exit(f"no dashboard in {folder}")
    sys.exit(failed)


main()
