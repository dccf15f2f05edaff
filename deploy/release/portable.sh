#!/usr/bin/env bash
# Builds the program for packages: OpenSSL is linked in, and on Linux zig links it for a C library as old
# as 2.28, which Debian 10, Ubuntu 20.04 and RHEL 8 have. Prints the path of the program.
#
# zig and cargo-zigbuild come from PyPI, pinned, into .keepsake/tools. Exit 4: a package is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
zig=$root/.keepsake/tools/zig
python=${PYTHON:-python3}
cd "$root"

host=$(rustc -vV | sed -n 's/^host: //p')
build=(build --release --locked --features portable --bin keepsake --target)
if [[ $host == *-apple-* ]]; then
  cargo "${build[@]}" "$host" >&2
else
  "$python" -m pip --version >/dev/null 2>&1 ||
    { echo 'release: missing: pip; on Debian: apt-get install python3-pip' >&2; exit 4; }
  command -v perl >/dev/null || { echo 'release: missing: perl, which builds OpenSSL; on Debian: apt-get install perl' >&2; exit 4; }
  wanted=$(sha256sum <"$here/requirements.txt")
  if [[ $(cat "$zig/version" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "$zig"
    "$python" -m pip install --quiet --no-deps --require-hashes --only-binary=:all: --no-compile --root-user-action=ignore \
      --disable-pip-version-check --target "$zig" --requirement "$here/requirements.txt" >&2
    printf '%s\n' "$wanted" >"$zig/version"
  fi
  PATH=$zig/bin:$PATH PYTHONPATH=$zig cargo zigbuild "${build[@]:1}" "$host.2.28" >&2
fi
printf '%s\n' "${CARGO_TARGET_DIR:-target}/$host/release/keepsake"
