#!/usr/bin/env bash
# Tests the clients against a real service on a real Kafka. KEEPSAKE names the program, by default the
# debug build. A test whose package is missing is skipped, loudly; the others still run.
#
#   run.sh [versions | python | typescript | java | rust | quickstarts | mcp | conformance]…
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/.keepsake/clients
export PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1 LANGSMITH_TRACING=false
KEEPSAKE=$(realpath "${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}")
export KEEPSAKE
python=${PYTHON:-python3}
passed=0 failed=0 skipped=0 service=''

# --- the service -------------------------------------------------------------------------------------------------------

# Sets KEEPSAKE_URL and KEEPSAKE_BROKERS. Exit code 4 without Java, from kafka.sh.
start() {
  [[ -n $service ]] && return
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/keepsake-clients.XXXXXX")
  KEEPSAKE_BROKERS=$("$root/deploy/kafka/kafka.sh" start "$scratch/kafka" --parent $$) || return
  local model=$root/.keepsake/model
  [[ -e $model/model.onnx ]] || model=hash
  (cd "$scratch" && exec "$KEEPSAKE" serve --gateway --brokers "$KEEPSAKE_BROKERS" --set gateway.listen=127.0.0.1:0 \
    --set http.listen=127.0.0.1:0 --set "store.dir=$scratch/store" --set "embedder.model=$model") \
    >"$scratch/log" 2>&1 </dev/null &
  service=$!
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    KEEPSAKE_URL=$(sed -n 's,^gateway: \(http://[^ ]*\).*,\1,p' "$scratch/log")
    if [[ -n $KEEPSAKE_URL ]] && curl -sf "$KEEPSAKE_URL/readyz" >/dev/null; then
      export KEEPSAKE_URL KEEPSAKE_BROKERS
      return
    fi
    kill -0 "$service" 2>/dev/null || break
    sleep 0.2
  done
  cat "$scratch/log" >&2
  return 1
}

stop() {
  if [[ -n $service ]]; then kill "$service" 2>/dev/null && wait "$service" || true; fi
  if [[ -n ${scratch:-} ]]; then
    "$root/deploy/kafka/kafka.sh" stop "$scratch/kafka" >/dev/null 2>&1 || true
    rm -rf "$scratch"
  fi
  rm -rf "$work/quickstarts"
}
trap stop EXIT

tool() { "$here/tools.sh" "$1"; }
installed() { PYTHONPATH=$work/package:$work/packages "$python" "$@"; }

# --- the tests ---------------------------------------------------------------------------------------------------------

versions() { "$python" "$here/versions.py"; }

python() {
  tool python && start || return
  cd "$work/python"
  PYTHONPATH=$work/package:$work/packages MYPYPATH=$work/package "$python" -m mypy --strict --cache-dir "$work/mypy" \
    --package keepsake_memory || return
  installed -m pytest -q -p no:cacheprovider tests
}

typescript() {
  tool node && start || return
  cd "$work/typescript"
  npx tsc && node --test --test-reporter=spec dist-test/test/*.test.js
}

java() {
  tool java && start || return
  cd "$work/java"
  mvn --batch-mode --no-transfer-progress --strict-checksums test </dev/null >"$work/java.log" 2>&1 ||
    { tail -n 60 "$work/java.log"; return 1; }
  grep -E '^\[.*Tests run:.*Time' "$work/java.log"
}

# Needs cargo and gcc, as the service itself does.
rust() {
  start || return
  CARGO_TARGET_DIR=$work/rust cargo test --quiet --locked --manifest-path "$root/deploy/clients/rust/Cargo.toml" -- --test-threads=2
}

quickstarts() { start && "$python" "$here/quickstarts.py"; }

mcp() {
  tool python && tool node && start || return
  installed "$here/mcp_tools.py" || return
  cd "$work/node"
  node --test --test-reporter=spec mcp_tools.mjs
}

# Scenarios that must have passed with at least one check: an expected failure is not a pass.
conformance() {
  tool node && start || return
  cd "$work/node"
  local scenario code=0
  npx conformance server --url "$KEEPSAKE_URL/mcp/conformance/" --expected-failures "$here/conformance.yml" \
    >"$work/conformance.log" 2>&1 || code=$?
  [[ $code -eq 0 ]] || { sed -n '/=== SUMMARY/,$p' "$work/conformance.log"; return 1; }
  for scenario in server-initialize ping tools-list resources-list prompts-list dns-rebinding-protection; do
    grep -qE "$scenario: [1-9][0-9]* passed, 0 failed" "$work/conformance.log" ||
      { printf 'clients: the scenario %s did not pass\n' "$scenario" >&2; return 1; }
    printf 'MCP conformance, %s: passed\n' "$scenario"
  done
  printf 'MCP conformance: %s scenarios do not apply, see conformance.yml\n' "$(grep -c '^  - ' "$here/conformance.yml")"
}

if [[ ! -x $KEEPSAKE ]]; then
  printf 'clients: no program at %s; run: cargo build --locked\n' "$KEEPSAKE" >&2
  exit 1
fi
if [[ $# -eq 0 ]]; then set -- versions python typescript java rust quickstarts mcp conformance; fi
for test; do
  code=0 began=$SECONDS
  printf '\nclients: %s\n' "$test"
  "$test" || code=$?
  cd "$root"
  case $code in
    0)
      passed=$((passed + 1))
      printf 'clients: %s passed, %d s\n' "$test" $((SECONDS - began))
      ;;
    4)
      skipped=$((skipped + 1))
      printf '%s\n' '****************************************************************************' \
        "**  SKIPPED: the test $test, or a part of it, for want of the package named above." \
        '**  This is not a full pass.' \
        '****************************************************************************'
      ;;
    *)
      failed=$((failed + 1))
      printf 'clients: the test %s failed\n' "$test" >&2
      ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 ]]
