#!/usr/bin/env python3
"""Appends the result of `keepsake bench … --json` (standard input) to history.csv, one line per ratio.

Ratios compare Keepsake with its bare parts in the same run, so that lines of different machines can be
compared. A bench without ratios is recorded by its figures, with the unit last in the name.
Prints each value beside the last one recorded with the same broker. `commit` ends in "+" if the
working tree had changes; `load` is the machine's load of the last minute before the run.
"""
import csv
import datetime
import json
import pathlib
import subprocess
import sys

HISTORY = pathlib.Path(__file__).with_name("history.csv")


def commit():
    def git(*arguments):
        command = ["git", "-C", HISTORY.parent, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changes = git("status", "--porcelain", "-uno", ":/", ":!history.csv")
        return git("rev-parse", "--short", "HEAD") + ("+" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main():
    report = json.load(sys.stdin)
    machine = report["machine"]
    with HISTORY.open(newline="") as file:
        rows = list(csv.DictReader(file))
    previous = {row["name"]: row for row in rows if row["broker"] == machine["broker"]}
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    run = commit()
    with HISTORY.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for name, value in (report["ratios"] or report["figures"]).items():
            before = previous.get(name)
            after = f"   {before['value']:>10} at {before['commit']}, {before['date']}" if before else ""
            print(f"  {name:28}{value:>10}{after}")
            row = [today, run, name, value]
            writer.writerow(row + [machine["broker"], machine["cores"], machine["load_one_minute"]])
    if machine["build"] != "release":
        print(f"bench: a {machine['build']} build was recorded; its values are not comparable", file=sys.stderr)


main()
