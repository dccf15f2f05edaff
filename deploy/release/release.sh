#!/usr/bin/env bash
# Builds a release: checks that versions and changelog agree, then writes the packages (packages.py), a
# list of all crates (CycloneDX), and checksums. The same commit makes the same files from the same
# program and encoder. It publishes nothing.
#
#   release.sh [--program FILE] [--model DIR] [--client DIR] [--out DIR] [wheel | npm | deb | archive]…
#
# --program: this program instead of a new build by portable.sh, which runs on any Linux
# --model: this encoder instead of .keepsake/model
# --client: the TypeScript client, built, instead of a new build
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"

say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

program='' out='' client='' model=.keepsake/model
while [[ ${1:-} == --* ]]; do
  case $1 in
    --program) program=${2:-} ;;
    --model) model=${2:-} ;;
    --client) client=${2:-} ;;
    --out) out=${2:-} ;;
    *) fail "no such option: $1; the first lines of $0 list them" ;;
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
tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}" || true)
[[ -z $tagged || $tagged == $(git rev-parse HEAD) ]] ||
  fail "v$version is released already, from another commit; raise the version in Cargo.toml"

# --- program and list of crates ----------------------------------------------------------------------------------------

if [[ -z $program ]]; then
  say "building $version"
  program=$("$here/portable.sh")
fi
[[ -x $program ]] || fail "--program: no program at $program"
[[ $("$program" --version) == "keepsake $version" ]] || fail "$program is another version: $("$program" --version)"

commit=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
out=${out:-target/release-$version}
name=keepsake-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed s/arm64/aarch64/)
mkdir -p "$out"
rm -f "${out:?}"/keepsake*
python3 "$here/sbom.py" "$commit" >"$out/$name.cdx.json"

# --- packages ----------------------------------------------------------------------------------------------------------

[[ $model != .keepsake/model ]] || deploy/model/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $client ]]; then
  client=$work/client
  cp -r deploy/clients/typescript "$client"
  (cd "$client" && npm ci --ignore-scripts --loglevel=error && npm run --silent build)
fi
python3 "$here/packages.py" --program "$program" --model "$model" --client "$client" --sbom "$out/$name.cdx.json" \
  --commit "$commit" --out "$out" "$@"
(cd "$out" && sha256sum keepsake* >"$work/sums" && mv "$work/sums" "$name.sha256")

say "next: git tag --sign v$version $commit; write $commit into tests/data/last-release"
