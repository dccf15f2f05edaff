#!/usr/bin/env bash
# Drives the explorer in a real Chromium against a real service, and prints a table of what was seen.
#
#   run.sh [DIRECTORY]     also writes screenshots of all screens there
#
# Exit 1: something is not as it must be. Exit 4: a package is missing.
# KEEPSAKE names the program, by default the debug build; times are held to their limits with the
# release build, and to twenty times as much with any other, on machines of any speed.
# KEEPSAKE_TEST_MODEL names the encoder; without it the stand-in "hash" compares words only.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/explorer
source=$root/processors/gateway/explorer
KEEPSAKE=$(realpath -m "${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}")
shots=${1:+$(realpath -m "$1")}
export KEEPSAKE
scratch='' services=()

stop() {
  local service
  for service in "${services[@]}"; do kill "$service" 2>/dev/null && wait "$service" || true; done
  if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}
trap stop EXIT

# Starts a service with a gateway in a directory of its own; further arguments are its options.
serve() {
  local dir=$scratch/$1
  shift
  mkdir -p "$dir"
  (cd "$dir" && exec "$KEEPSAKE" serve --set kafka.bootstrap_servers=embedded --data "$dir/data" --set embedded.listen=127.0.0.1:0 \
    --set "embedder.model=${KEEPSAKE_TEST_MODEL:-hash}" --set http.listen=127.0.0.1:0 --set gateway.listen=127.0.0.1:0 \
    "$@") >"$dir/log" 2>&1 </dev/null &
  services+=($!)
}

# Prints the address of the gateway of a service when it is ready.
address() {
  local tries url log=$scratch/$1/log
  for ((tries = 0; tries < 300; tries++)); do
    url=$(sed -n 's,^gateway: \(http://[^ ]*\).*,\1,p' "$log" 2>/dev/null || true)
    if [[ -n $url ]] && node -e 'fetch(process.argv[1]).then((it) => process.exit(it.ok ? 0 : 1), () => process.exit(1))' "$url/readyz"; then
      printf '%s\n' "$url"
      return
    fi
    sleep 0.1
  done
  cat "$log" >&2
  return 1
}

if [[ ! -x $KEEPSAKE ]]; then
  printf 'explorer: no program at %s; run: cargo build --locked\n' "$KEEPSAKE" >&2
  exit 1
fi
code=0
"$here/tools.sh" || code=$?
if [[ $code -eq 4 ]]; then
  printf '%s\n' '****************************************************************************' \
    "**  SKIPPED: the explorer, for want of the package named above." \
    '**  This is not a pass.' \
    '****************************************************************************' >&2
fi
[[ $code -eq 0 ]] || exit "$code"

# The types of the modules, with those of the vendored library from its package.
cmp "$source/vendor/lit-html.js" "$work/node_modules/lit-html/lit-html.js"
rm -rf "$work/explorer"
cp -r "$source" "$work/explorer"
rm "$work/explorer/vendor/lit-html.js"
printf "export * from 'lit-html';\n" >"$work/explorer/vendor/lit-html.d.ts"
cp "$here/tsconfig.json" "$work/"
(cd "$work" && node node_modules/typescript/bin/tsc -p .)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/keepsake-explorer.XXXXXX")
serve open
mkdir -p "$scratch/keyed"
key() { (cd "$scratch/keyed" && "$KEEPSAKE" keys new --tenant acme --set "gateway.keys=$scratch/keyed/keys.toml" "$@" | grep -oE 'ksk_[0-9a-f]+_[0-9a-f]+'); }
KEEPSAKE_KEY=$(key --rights read,write,forget,admin)
KEEPSAKE_READ_KEY=$(key --rights read --user wren)
serve many
serve keyed --set "gateway.keys=$scratch/keyed/keys.toml"
KEEPSAKE_URL=$(address open)
KEEPSAKE_KEYED_URL=$(address keyed)
KEEPSAKE_MANY_URL=$(address many)
KEEPSAKE_OPEN_DATA=$scratch/open/data
export KEEPSAKE_OPEN_DATA KEEPSAKE_KEY KEEPSAKE_READ_KEY KEEPSAKE_URL KEEPSAKE_KEYED_URL KEEPSAKE_MANY_URL EXPLORER_SHOTS="$shots" EXPLORER_FIGURES="$scratch/figures"

mkdir -p "$work/tests"
cp "$here"/*.mjs "$work/tests/"
: >"$EXPLORER_FIGURES"
cd "$work/tests"
# Memories that take minutes to store are stored meanwhile; what is timed comes after them.
node fill.mjs &
fill=$!
services+=("$fill")
node --test --test-concurrency=1 --test-reporter=spec {screens,questions,actions,markup}.test.mjs || code=$?
wait "$fill" && node --test --test-reporter=spec figures.test.mjs || code=$?
printf '\n'
column -t -s '|' "$EXPLORER_FIGURES"
exit "$code"
