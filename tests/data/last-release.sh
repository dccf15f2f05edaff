#!/usr/bin/env bash
# Builds the program of the last release from the history, for the test of two versions in one group,
# and prints its path. Exit 4 if the history does not have the commit, as in a shallow clone, or if that
# program has another state of the format, as may be until a release is tagged: the two share no shard.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
commit=$(sed -n '/^#/!p' "$here/last-release")
dir=$root/.keepsake/last-release
program=$dir/$commit/keepsake

git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null || {
  printf 'last release: the history has no commit %s; run: git fetch --unshallow\n' "$commit" >&2
  exit 4
}
format=processors/storage/store/format.rs
state() { sed -n 's/^pub const VERSION: u8 = \(.*\);$/\1/p'; }
if [[ -z $(git -C "$root" tag --list 'v*') && $(git -C "$root" show "$commit:$format" | state) != "$(state <"$root/$format")" ]]; then
  printf 'last release: %s has another state of format 1; write the commit of this one into %s\n' "$commit" "$here/last-release" >&2
  exit 4
fi
if [[ ! -x $program ]]; then
  rm -rf "$dir/source"
  mkdir -p "$dir/source" "$dir/$commit"
  git -C "$root" archive "$commit" | tar --extract --directory "$dir/source"
  (cd "$dir/source" && cargo build --locked --target-dir "$dir/build" >&2)
  cp "$dir/build/debug/keepsake" "$program"
  rm -rf "$dir/source" "$dir/build"
fi
printf '%s\n' "$program"
