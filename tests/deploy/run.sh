#!/usr/bin/env bash
# Tests the deployment: chart, Compose file, image, release, packages, workflows, book. KEEPSAKE names
# the program, by default the debug build. A test whose package is missing is skipped, loudly; the
# others still run.
#
#   run.sh [chart | compose | image | release | packages | workflows | book]…
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
export TOOLS=$root/.keepsake/tools
export HELM=$TOOLS/bin/helm COMPOSE=$TOOLS/bin/compose-spec PYTHONDONTWRITEBYTECODE=1
export KEEPSAKE=${KEEPSAKE:-${CARGO_TARGET_DIR:-$root/target}/debug/keepsake}
python=${PYTHON:-python3}
passed=0 failed=0 skipped=0

chart() { "$here/tools.sh" helm && "$here/tools.sh" schemas && "$python" "$here/chart.py"; }
compose() { "$here/tools.sh" compose && "$python" "$here/compose.py"; }
image() { "$here/tools.sh" schemas && "$python" "$here/image.py"; }
book() { "$here/tools.sh" mdbook && "$python" "$here/book.py"; }
release() { "$here/tools.sh" schemas && "$python" "$here/release.py"; }
packages() {
  "$root/tests/clients/tools.sh" node || return
  TYPESCRIPT=$root/.keepsake/clients/typescript "$python" "$here/packages.py"
}
workflows() { "$here/tools.sh" actionlint && "$TOOLS/bin/actionlint" "$root"/.github/workflows/*.yml; }

if [[ ! -x $KEEPSAKE ]]; then
  printf 'deploy: no program at %s; run: cargo build --locked\n' "$KEEPSAKE" >&2
  exit 1
fi
if [[ $# -eq 0 ]]; then set -- chart compose image release packages workflows book; fi
for test; do
  code=0
  "$test" || code=$?
  case $code in
    0) passed=$((passed + 1)) ;;
    4)
      skipped=$((skipped + 1))
      printf '%s\n' '****************************************************************************' \
        "**  SKIPPED: the test of the $test, for want of the package named above." \
        '**  This is not a full pass.' \
        '****************************************************************************'
      ;;
    *)
      failed=$((failed + 1))
      printf 'deploy: the test of the %s failed\n' "$test" >&2
      ;;
  esac
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 ]]
