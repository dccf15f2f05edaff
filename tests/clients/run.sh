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
KEEPSAKE=$(realpath -m "${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}")
python=${PYTHON:-python3}
passed=0 failed=0 skipped=0
scratch='' started='' processes=()

say() { printf 'clients: %s\n' "$*"; }

# --- the service -------------------------------------------------------------------------------------------------------

# Starts Kafka, the service with a gateway, and a second gateway that asks for a key, once. Exit code 4
# without a package.
start() {
  if [[ -z $started ]]; then
    started=0
    serve || started=$?
  fi
  return "$started"
}

serve() {
  local model=$root/.keepsake/model
  command -v curl >/dev/null || { say 'missing: curl; on Debian: apt-get install curl' >&2; return 4; }
  # The questions of the tests are about meanings, which the stand-in "hash" does not know.
  [[ -e $model/model.onnx ]] || { say 'missing: the model; run: deploy/model/setup.sh' >&2; return 4; }
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/keepsake-clients.XXXXXX")
  KEEPSAKE_BROKERS=$("$root/deploy/kafka/kafka.sh" start "$scratch/kafka" --parent $$) || return
  KEEPSAKE_KEY=$("$KEEPSAKE" keys new --tenant keyed --rights read,write,forget --set "gateway.keys=$scratch/keys") || return
  run service serve --gateway --set http.listen=127.0.0.1:0 --set "store.dir=$scratch/store" --set "embedder.model=$model"
  KEEPSAKE_URL=$(address service) || return
  run keyed gateway --set "gateway.keys=$scratch/keys"
  KEEPSAKE_KEYED_URL=$(address keyed) || return
  export KEEPSAKE KEEPSAKE_BROKERS KEEPSAKE_URL KEEPSAKE_KEYED_URL KEEPSAKE_KEY
}

run() { # $1: a name for the log; then a command of the program with its options
  : >"$scratch/$1.log"
  (cd "$scratch" && exec "$KEEPSAKE" "${@:2}" --brokers "$KEEPSAKE_BROKERS" --set gateway.listen=127.0.0.1:0) \
    >"$scratch/$1.log" 2>&1 </dev/null &
  processes+=("$!")
}

# Prints the address of the gateway that logs to $1, when it is ready.
address() {
  local tries url
  for ((tries = 0; tries < 600; tries++)); do
    url=$(sed -n 's,^gateway: \(http://[^ ]*\).*,\1,p' "$scratch/$1.log")
    if [[ -n $url ]] && curl -sf "$url/readyz" >/dev/null; then
      printf '%s\n' "$url"
      return
    fi
    sleep 0.2
  done
  cat "$scratch/$1.log" >&2
  return 1
}

stop() {
  local process
  for process in "${processes[@]}"; do kill "$process" 2>/dev/null && wait "$process" || true; done
  if [[ -n $scratch ]]; then
    "$root/deploy/kafka/kafka.sh" stop "$scratch/kafka" >/dev/null 2>&1 || true
    rm -rf "$scratch"
  fi
  rm -rf "$work/quickstarts"
}
trap stop EXIT

# --- the tests ---------------------------------------------------------------------------------------------------------

tool() { "$here/tools.sh" "$1"; }
installed() { PYTHONPATH=$work/package:$work/packages "$python" "$@"; }

test_versions() { "$python" "$here/versions.py"; }

test_python() {
  tool python && start || return
  cd "$work/python"
  MYPYPATH=$work/package installed -m mypy --strict --cache-dir "$work/mypy" --package keepsake_recall || return
  installed -m pytest -q -p no:cacheprovider -W error::pytest.PytestUnhandledThreadExceptionWarning tests
}

test_typescript() {
  tool node && start || return
  cd "$work/typescript"
  npx tsc && node --test --test-reporter=spec dist-test/test/*.test.js
}

test_java() {
  tool java && start || return
  cd "$work/java"
  mvn --batch-mode --no-transfer-progress --strict-checksums test </dev/null >"$work/java.log" 2>&1 ||
    { tail -n 60 "$work/java.log"; return 1; }
  grep -E '^\[.*Tests run:.*Time' "$work/java.log"
}

# Needs cargo and gcc, as the service itself does.
test_rust() {
  start || return
  cd "$root/deploy/clients/rust"
  CARGO_TARGET_DIR=$work/rust cargo test --quiet --locked --test client
}

test_quickstarts() { start && "$python" "$here/quickstarts.py"; }

test_mcp() {
  tool python && tool node && start || return
  installed "$here/mcp_tools.py" || return
  installed "$here/mcp_oauth.py" || return
  cd "$work/node"
  node --test --test-reporter=spec mcp_tools.mjs
}

# Names the scenarios that must have passed with at least one check: an expected failure is not a pass.
test_conformance() {
  tool node && start || return
  cd "$work/node"
  local scenario code=0
  npx conformance server --url "$KEEPSAKE_URL/mcp/conformance/" --expected-failures "$here/conformance.yml" \
    >"$work/conformance.log" 2>&1 || code=$?
  [[ $code -eq 0 ]] || { sed -n '/=== SUMMARY/,$p' "$work/conformance.log"; return 1; }
  for scenario in server-initialize ping tools-list resources-list prompts-list dns-rebinding-protection; do
    grep -qE "$scenario: [1-9][0-9]* passed, 0 failed" "$work/conformance.log" ||
      { say "the scenario $scenario did not pass" >&2; return 1; }
    say "MCP conformance, $scenario: passed"
  done
  say "MCP conformance: $(grep -c '^  - ' "$here/conformance.yml") scenarios do not apply, see conformance.yml"
}

if [[ ! -x $KEEPSAKE ]]; then
  say "no program at $KEEPSAKE; run: cargo build --locked" >&2
  exit 1
fi
if [[ $# -eq 0 ]]; then set -- versions python typescript java rust quickstarts mcp conformance; fi
for name; do
  declare -F "test_$name" >/dev/null || { say "there is no test $name" >&2; exit 2; }
done
for name; do
  code=0 began=$SECONDS
  printf '\n'
  say "$name"
  "test_$name" || code=$?
  cd "$root"
  case $code in
    0)
      passed=$((passed + 1))
      say "$name passed, $((SECONDS - began)) s"
      ;;
    4)
      skipped=$((skipped + 1))
      printf '%s\n' '****************************************************************************' \
        "**  SKIPPED: the test $name, or a part of it, for want of the package named above." \
        '**  This is not a full pass.' \
        '****************************************************************************'
      ;;
    *)
      failed=$((failed + 1))
      say "the test $name failed" >&2
      ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 ]]
