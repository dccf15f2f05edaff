#!/usr/bin/env bash
# Loads the dashboards of this folder strictly, with Grafana's foundation SDK (check.py). The SDK is
# installed into a temporary directory. Where it cannot be installed nothing is checked, and a loud line
# says so: exit 0. Exit 1: a dashboard does not load.
#
# PYTHON sets the interpreter (default python3).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skipped() { printf '*** SKIPPED dashboards: nobody has loaded them strictly now (%s) ***\n' "$*" >&2; exit 0; }

"${PYTHON:-python3}" -m venv "$work/venv" >/dev/null 2>&1 || skipped "no venv; on Debian: apt-get install python3-venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --only-binary=:all: --requirement "$here/requirements.txt" >"$work/log" 2>&1 ||
  skipped "the SDK does not install: $(tail -n 1 "$work/log")"
"$work/venv/bin/python" "$here/check.py"
