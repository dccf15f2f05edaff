#!/usr/bin/env bash
# Builds the container image as an OCI layout, without Docker and without a registry: Debian's libraries
# that the program needs, the program, the model. The last stage of deploy/Dockerfile says how it runs.
#
#   build.sh --program target/release/keepsake --model .keepsake/model --out DIR     exit 4: a package is missing
#
# Copy it to a registry with `skopeo copy oci:DIR docker://REGISTRY/keepsake:VERSION`, or to Docker with
# `skopeo copy oci:DIR docker-daemon:keepsake:VERSION`. The same inputs make the same bytes:
# SOURCE_DATE_EPOCH is the time of every file, by default that of the last commit.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

fail() { printf 'image: %s\n' "$*" >&2; exit 1; }
missing() { printf 'image: missing: %s\n' "$*" >&2; exit 4; }

program='' model='' out=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --program) program=${2:-} ;;
    --model) model=${2:-} ;;
    --out) out=${2:-} ;;
    *) fail "usage: build.sh --program FILE --model DIR --out DIR" ;;
  esac
  shift 2 || fail "$1 needs a value"
done
[[ -x $program ]] || fail "--program: no program at ${program:-(nothing)}; run: cargo build --release --locked"
[[ -f $model/model.onnx ]] || fail "--model: no model in ${model:-(nothing)}; run: deploy/model/setup.sh"
[[ -n $out ]] || fail "--out: name the directory of the layout"
for tool in dpkg-deb apt-get ldd; do
  command -v "$tool" >/dev/null || missing "$tool: the libraries come from Debian's packages; elsewhere use deploy/Dockerfile"
done
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}

# Prints the Debian packages of the libraries that program and runtime load.
libraries() {
  local library
  { ldd "$program"; ldd "$model/libonnxruntime.so"; } | grep -o '/[^ ]*' | sort -u | while read -r library; do
    # Debian knows a library by the path in its package, which may be without /usr.
    dpkg -S "$library" 2>/dev/null || dpkg -S "/usr$library" 2>/dev/null || dpkg -S "$(realpath "$library")" 2>/dev/null ||
      fail "$library belongs to no package; build the program on Debian"
  done | cut -d: -f1 | sort -u
}

# The packages are kept, so that a second build needs no network.
download() { # $1: package
  local file
  file=$(find "$debs" -name "$1_*.deb" | sort | tail -n 1)
  if [[ -z $file ]]; then
    (cd "$debs" && apt-get download --quiet=2 "$1" 2>"$work/log") ||
      { cat "$work/log" >&2; fail "$1 could not be fetched; run: apt-get update"; }
    file=$(find "$debs" -name "$1_*.deb")
  fi
  printf '%s\n' "$file"
}

debs=$root/.keepsake/cache/debs/$(dpkg --print-architecture)-$(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' /etc/os-release)
mkdir -p "$debs"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
system=$work/system

libraries >"$work/libraries"
"$python" "$here/layout.py" packages "$work/libraries" >"$work/packages"
mkdir -p "$system/var/lib/dpkg/status.d"
while read -r package; do
  file=$(download "$package")
  dpkg-deb -x "$file" "$system"
  dpkg-deb -f "$file" >"$system/var/lib/dpkg/status.d/$package" # scanners look here
done <"$work/packages"
# Documentation and conversions of other encodings; the licences stay.
find "$system/usr/share/doc" -type f ! -name copyright -delete
rm -rf "$system"/usr/share/{lintian,man,bug} "$system"/usr/lib/*/gconv "$system"/usr/sbin "$system"/etc/ca-certificates

# What update-ca-certificates would write. OpenSSL looks in /usr/lib/ssl.
mkdir -p "$system"/{etc/ssl/certs,usr/lib/ssl,tmp,proc,sys,dev,run,var/lib/keepsake}
find "$system/usr/share/ca-certificates/mozilla" -name '*.crt' | LC_ALL=C sort | xargs cat >"$system/etc/ssl/certs/ca-certificates.crt"
ln -s /etc/ssl/certs/ca-certificates.crt "$system/usr/lib/ssl/cert.pem"
cp /etc/os-release "$system/etc/os-release"
printf 'hosts: files dns\n' >"$system/etc/nsswitch.conf"

rm -rf "$out"
"$python" "$here/layout.py" write --system "$system" --program "$program" --model "$model" --out "$out"
