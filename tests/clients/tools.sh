#!/usr/bin/env bash
# Installs what the tests of the clients need into .keepsake/clients, each package pinned: by
# requirements.txt, by the package-lock.json files, and by pom.xml.
#
#   tools.sh python | node | java | kcat     exit 0 done, 1 failed, 4 a package is missing
#
# The clients are copied there too and built from the copies, so the work tree stays clean.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/clients
python=${PYTHON:-python3}

fail() { printf 'clients: %s\n' "$*" >&2; exit 1; }
missing() { printf 'clients: missing: %s\n' "$*" >&2; exit 4; }
needs() { # $1: command, $2: Debian package
  command -v "$1" >/dev/null || missing "$1; on Debian: apt-get install $2"
}

# Copies the client $1 anew, without the files that a build makes. Fails if this copy is built already.
copy() {
  local archive=$work/$1.tar built=$work/$1.built
  tar -C "$root/deploy/clients/$1" -cf "$archive" --sort=name --mtime=2001-01-01 --owner=0 --group=0 --numeric-owner \
    --exclude=node_modules --exclude=target --exclude=dist --exclude=dist-test --exclude=build --exclude='*.egg-info' \
    --exclude=__pycache__ --exclude='.*_cache' .
  digest=$(sha256sum <"$archive")
  [[ $(cat "$built" 2>/dev/null) != "$digest" ]] || return
  rm -f "$built"
  mkdir -p "$work/$1"
  find "$work/$1" -mindepth 1 -maxdepth 1 ! -name node_modules -exec rm -rf {} +
  tar -C "$work/$1" -xf "$archive"
}

built() { printf '%s\n' "$digest" >"$work/$1.built"; } # the copy of the client $1

# Runs `npm ci` in $1, unless this lock file was installed there.
modules() {
  local wanted
  wanted=$(sha256sum <"$1/package-lock.json")
  [[ $(cat "$1/node_modules/installed" 2>/dev/null) == "$wanted" ]] && return
  (cd "$1" && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error) || fail "the packages of $1 do not install"
  printf '%s\n' "$wanted" >"$1/node_modules/installed"
}

install_python() {
  needs "$python" python3
  "$python" -m pip --version >/dev/null 2>&1 || missing 'pip; on Debian: apt-get install python3-pip'
  local wanted pip=("$python" -m pip install --quiet --no-deps --no-compile)
  pip+=(--root-user-action=ignore --disable-pip-version-check)
  wanted=$(sha256sum <"$here/requirements.txt")
  if [[ $(cat "$work/packages/installed" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "$work/packages"
    "${pip[@]}" --require-hashes --only-binary=:all: --target "$work/packages" --requirement "$here/requirements.txt" ||
      fail "the packages of requirements.txt do not install"
    printf '%s\n' "$wanted" >"$work/packages/installed"
  fi
  copy python || return 0
  rm -rf "$work/package"
  PYTHONPATH=$work/packages "${pip[@]}" --no-build-isolation --target "$work/package" "$work/python" 2>"$work/python/log" ||
    { cat "$work/python/log" >&2; fail "the client does not install"; }
  # The tests use the package as it is installed, not its source.
  rm -rf "$work/python/keepsake_recall" "$work/python/build"
  built python
}

install_node() {
  needs node nodejs
  needs npm npm
  node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || missing 'Node 20 or newer'
  mkdir -p "$work/node"
  cp "$here"/node/{package.json,package-lock.json,.npmrc,mcp_tools.mjs} "$work/node/"
  modules "$work/node"
  copy typescript || return 0
  modules "$work/typescript"
  (cd "$work/typescript" && npm run --silent build) || fail "the client does not build"
  built typescript
}

install_java() {
  needs javac default-jdk-headless
  needs mvn maven
  copy java || return 0
  (cd "$work/java" && mvn --quiet --batch-mode --strict-checksums package dependency:build-classpath \
    -DskipTests -Dmdep.outputFile=target/classpath </dev/null) || fail "the client does not build; check the network and run it again"
  built java
}

mkdir -p "$work"
exec 9>"$work/lock"
flock 9
case "$*" in
  python | node | java) "install_$1" ;;
  kcat) needs kcat kcat ;;
  *) fail "usage: tools.sh python | node | java | kcat" ;;
esac
