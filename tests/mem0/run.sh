#!/usr/bin/env bash
# Drives the unchanged clients of mem0's hosted service, in Python and in TypeScript, through their whole
# API against a gateway, and prints how each call ends: answered, refused by name, or failed. Exit 1: a
# call failed, or fewer than 90 % of the calls that need neither mem0's language model nor its platform nor
# memories of several users are answered. Exit 4: a package is missing.
#
# KEEPSAKE names the program, by default the debug build.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/mem0
KEEPSAKE=$(realpath -m "${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}")
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 MEM0_TELEMETRY=False
scratch='' service=''

skip() {
  printf '%s\n' '****************************************************************************' \
    "**  SKIPPED: the clients of mem0, for want of the package named above." \
    '**  This is not a pass.' \
    '****************************************************************************' >&2
  exit 4
}

stop() {
  if [[ -n $service ]]; then kill "$service" 2>/dev/null && wait "$service" || true; fi
  if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}
trap stop EXIT

# Prints the address of the gateway when it is ready.
address() {
  local tries url
  for ((tries = 0; tries < 300; tries++)); do
    url=$(sed -n 's,^gateway: \(http://[^ ]*\).*,\1,p' "$scratch/log")
    if [[ -n $url ]] && "$python" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1])' "$url/readyz" 2>/dev/null; then
      printf '%s\n' "$url"
      return
    fi
    sleep 0.1
  done
  cat "$scratch/log" >&2
  return 1
}

if [[ ! -x $KEEPSAKE ]]; then
  printf 'mem0: no program at %s; run: cargo build --locked\n' "$KEEPSAKE" >&2
  exit 1
fi
for tool in python node; do
  code=0
  "$here/tools.sh" "$tool" || code=$?
  if [[ $code -eq 4 ]]; then skip; elif [[ $code -ne 0 ]]; then exit 1; fi
done

scratch=$(mktemp -d "${TMPDIR:-/tmp}/keepsake-mem0.XXXXXX")
# The clients keep a file in the home directory.
export MEM0_DIR=$scratch/mem0
: >"$scratch/log"
(cd "$scratch" && exec "$KEEPSAKE" serve --set kafka.bootstrap_servers=embedded --data "$scratch/data" --set embedded.listen=127.0.0.1:0 \
  --set embedder.model=hash --set http.listen=127.0.0.1:0 --set gateway.listen=127.0.0.1:0) >"$scratch/log" 2>&1 </dev/null &
service=$!
KEEPSAKE_URL=$(address)
export KEEPSAKE_URL

# The clients of both languages have the same table of calls, each with a tenant's worth of its own users.
: >"$scratch/calls"
PYTHONPATH=$work/packages "$python" "$here/calls.py" sync >>"$scratch/calls"
PYTHONPATH=$work/packages "$python" "$here/calls.py" async >>"$scratch/calls"
cp "$here/calls.mjs" "$work/node/"
# This client reads the variable in lower case.
(cd "$work/node" && MEM0_TELEMETRY=false node calls.mjs) >>"$scratch/calls"
"$python" "$here/table.py" <"$scratch/calls"
