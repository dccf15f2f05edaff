#!/usr/bin/env bash
# Installs what the tests of the explorer need into .keepsake/explorer, pinned by package-lock.json.
# Exit 0: done, 1: failed, 4: a package is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(cd "$here/../.." && pwd)/.keepsake/explorer

missing() { printf 'explorer: missing: %s\n' "$*" >&2; exit 4; }
command -v chromium >/dev/null || missing 'chromium; on Debian: apt-get install chromium'
command -v node >/dev/null || missing 'node; on Debian: apt-get install nodejs'
command -v npm >/dev/null || missing 'npm; on Debian: apt-get install npm'
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || missing 'Node 20 or newer'

mkdir -p "$work"
cp "$here"/{package.json,package-lock.json,.npmrc} "$work/"
wanted=$(sha256sum <"$here/package-lock.json")
if [[ $(cat "$work/node_modules/installed" 2>/dev/null) != "$wanted" ]]; then
  (cd "$work" && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error) || {
    printf 'explorer: the packages of package-lock.json do not install\n' >&2
    exit 1
  }
  printf '%s\n' "$wanted" >"$work/node_modules/installed"
fi
