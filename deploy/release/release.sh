#!/usr/bin/env bash
# Builds a release: checks that versions and changelog agree, then writes an archive with the program,
# its options, licences, chart, alerts and dashboards, a list of all crates (CycloneDX), and checksums.
# The same commit makes the same archive from the same program. It publishes nothing.
#
#   release.sh [--program FILE] [--out DIR]     --program: this program instead of a new build
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

program='' out=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --program) program=${2:-} ;;
    --out) out=${2:-} ;;
    *) fail "usage: release.sh [--program FILE] [--out DIR]" ;;
  esac
  shift 2 || fail "$1 needs a value"
done

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[[ -n $version ]] || fail "Cargo.toml has no version under [workspace.package]"

# --- what must agree ---------------------------------------------------------------------------------------------------

newest=$(sed -n 's/^## \[\([0-9].*\)\] - [0-9]\{4\}-[0-9][0-9]-[0-9][0-9]$/\1/p' CHANGELOG.md | head -n 1)
[[ $newest == "$version" ]] ||
  fail "CHANGELOG.md: its newest version is ${newest:-none}, Cargo.toml has $version; write \"## [$version] - $(date -u +%F)\" over what is new"
has() { grep -qxF "$2" "$1"; }
chart=deploy/helm/keepsake/Chart.yaml
if ! has "$chart" "version: $version" || ! has "$chart" "appVersion: \"$version\""; then
  fail "$chart: has another version than Cargo.toml; write $version in both places"
fi
[[ $(sed -n '/^name = "keepsake"$/{n;p}' Cargo.lock) == "version = \"$version\"" ]] ||
  fail "Cargo.lock: has another version than Cargo.toml; run: cargo update --workspace"
[[ -z $(git status --porcelain) ]] || fail "the tree has uncommitted changes; commit them, or release from a clean clone"
[[ -z $(git tag --list "v$version") ]] || fail "v$version is released already; raise the version in Cargo.toml"

# --- program and list of crates ----------------------------------------------------------------------------------------

if [[ -z $program ]]; then
  say "building $version"
  cargo build --release --locked
  program=${CARGO_TARGET_DIR:-target}/release/keepsake
fi
[[ -x $program ]] || fail "--program: no program at $program"
[[ $("$program" --version) == "keepsake $version" ]] || fail "$program is another version: $("$program" --version)"

commit=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
out=${out:-target/release-$version}
name=keepsake-$version-linux-$(uname -m)
mkdir -p "$out"
rm -rf "${out:?}/$name"*
python3 "$here/sbom.py" "$commit" >"$out/$name.cdx.json"

# --- archive -----------------------------------------------------------------------------------------------------------

stage=$out/$name
mkdir "$stage"
cp "$program" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT NOTICE "$out/$name.cdx.json" "$stage/"
mkdir "$stage/config" "$stage/deploy"
cp config/default.toml config/REFERENCE.md "$stage/config/"
# The chart links to the alerts; the archive has files only.
cp -rL deploy/helm deploy/prometheus deploy/grafana deploy/model deploy/RUNBOOK.md deploy/README.md deploy/SIZING.md "$stage/deploy/"
cp -r schemas "$stage/"
printf '%s\n' "$commit" >"$stage/COMMIT"
chmod -R u=rwX,go=rX "$stage"
tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=posix \
  --pax-option=delete=atime,delete=ctime --directory "$out" "$name" | gzip --no-name >"$out/$name.tar.gz"
rm -r "$stage"
(cd "$out" && sha256sum "$name.tar.gz" "$name.cdx.json" >"$name.sha256")

say "$out/$name.tar.gz, $(du -h "$out/$name.tar.gz" | cut -f1)"
say "next: git tag --sign v$version $commit; write $commit into tests/data/last-release"
