#!/usr/bin/env bash
# Installs mem0's clients into .keepsake/mem0, each package pinned: by requirements.txt and by
# package-lock.json.
#
#   tools.sh python | node     exit 0 done, 1 failed, 4 a package is missing
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/mem0
python=${PYTHON:-python3}

fail() { printf 'mem0: %s\n' "$*" >&2; exit 1; }
missing() { printf 'mem0: missing: %s\n' "$*" >&2; exit 4; }
needs() { # $1: command, $2: Debian package
  command -v "$1" >/dev/null || missing "$1; on Debian: apt-get install $2"
}
is_installed() { [[ $(cat "$1/installed" 2>/dev/null) == "$(sha256sum <"$2")" ]]; }
installed() { sha256sum <"$2" >"$1/installed"; }

install_python() {
  needs "$python" python3
  "$python" -m pip --version >/dev/null 2>&1 || missing 'pip; on Debian: apt-get install python3-pip'
  is_installed "$work/packages" "$here/requirements.txt" && return
  rm -rf "$work/packages"
  "$python" -m pip install --quiet --no-deps --no-compile --root-user-action=ignore --disable-pip-version-check \
    --require-hashes --only-binary=:all: --target "$work/packages" --requirement "$here/requirements.txt" ||
    fail "the packages of requirements.txt do not install"
  installed "$work/packages" "$here/requirements.txt"
}

install_node() {
  needs node nodejs
  needs npm npm
  node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || missing 'Node 18 or newer'
  is_installed "$work/node/node_modules" "$here/package-lock.json" && return
  mkdir -p "$work/node"
  cp "$here"/{package.json,package-lock.json,.npmrc} "$work/node/"
  (cd "$work/node" && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error) ||
    fail "the packages of package-lock.json do not install"
  installed "$work/node/node_modules" "$here/package-lock.json"
}

mkdir -p "$work"
exec 9>"$work/lock"
flock 9
case "$*" in
  python | node) "install_$1" ;;
  *) fail "usage: tools.sh python | node" ;;
esac
