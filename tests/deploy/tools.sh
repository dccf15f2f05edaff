#!/usr/bin/env bash
# Installs the programs and schemas that check the deployment into .keepsake/tools, each pinned.
#
#   tools.sh helm | compose | actionlint | schemas | mdbook     exit 0 done, 1 failed, 4 a package is missing
#
# helm, actionlint, and compose-spec, which reads a Compose file as Compose does, are built from Go
# modules, and mdbook from its crate, unless the PATH has this version. The schemas are those of Kubernetes,
# of CycloneDX, of OCI images and of the Prometheus operator.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools=$(cd "$here/../.." && pwd)/.keepsake/tools
helm=helm.sh/helm/v3/cmd/helm@v3.22.0
compose=github.com/compose-spec/compose-go/v2/cmd@v2.16.2
actionlint=github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
oci=github.com/opencontainers/image-spec@v1.1.1
mdbook=0.5.4
python=${PYTHON:-python3}

fail() { printf 'tools: %s\n' "$*" >&2; exit 1; }
missing() { printf 'tools: missing: %s\n' "$*" >&2; exit 4; }

needs_go() {
  command -v go >/dev/null || missing "Go 1.26 or newer; on Debian 14: apt-get install golang-go, elsewhere https://go.dev/dl"
}

# Builds the program $2 of a module under the name $1, unless this version is there.
build() {
  [[ $(cat "$tools/$1.version" 2>/dev/null) == "$2" && -x $tools/bin/$1 ]] && return
  needs_go
  printf 'tools: building %s (once; minutes without a build cache)\n' "$2"
  mkdir -p "$tools/bin"
  local new
  new=$(mktemp -d "$tools/new.XXXXXX")
  GOBIN=$new go install "$2" 2>"$new/log" || { tail -n 5 "$new/log" >&2; fail "$2 does not build; Go 1.26 or newer is needed"; }
  rm "$new/log"
  mv "$new"/* "$tools/bin/$1"
  rmdir "$new"
  printf '%s\n' "$2" >"$tools/$1.version"
}

# Copies the files $3 of the module $2 to the directory $1.
files() {
  [[ $(cat "$tools/$1/version" 2>/dev/null) == "$2" ]] && return
  needs_go
  local from
  from=$(go mod download -json "$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  [[ -d $from ]] || fail "$2 could not be fetched; check the network and run it again"
  rm -rf "${tools:?}/$1"
  mkdir -p "$tools/$1"
  # shellcheck disable=SC2086 # $3 is a pattern
  (cd "$from" && cp $3 "$tools/$1/")
  printf '%s\n' "$2" >"$tools/$1/version"
}

packages() {
  local wanted
  wanted=$(sha256sum <"$here/requirements.txt")
  [[ $(cat "$tools/python/version" 2>/dev/null) == "$wanted" ]] && return
  "$python" -m pip --version >/dev/null 2>&1 || missing "pip; on Debian: apt-get install python3-pip"
  rm -rf "$tools/python"
  "$python" -m pip install --quiet --no-deps --require-hashes --only-binary=:all: --no-compile --root-user-action=ignore \
    --disable-pip-version-check --target "$tools/python" --requirement "$here/requirements.txt" || fail "the packages do not install"
  printf '%s\n' "$wanted" >"$tools/python/version"
}

# Builds the crate $1 in version $2, with further options of cargo.
crate() {
  [[ $("$tools/bin/$1" --version 2>/dev/null) == *"$2" ]] && return
  if [[ $("$1" --version 2>/dev/null) == *"$2" ]]; then
    mkdir -p "$tools/bin"
    ln -sf "$(command -v "$1")" "$tools/bin/$1"
    return
  fi
  printf 'tools: building %s %s (once; minutes)\n' "$1" "$2"
  cargo install "$1" --locked --quiet --version "$2" --root "$tools" "${@:3}" || fail "$1 $2 does not build"
}

mkdir -p "$tools"
exec 9>"$tools/lock"
flock 9
case "$*" in
  helm) build helm "$helm" ;;
  compose) build compose-spec "$compose" ;;
  actionlint) build actionlint "$actionlint" ;;
  mdbook) crate mdbook "$mdbook" --no-default-features --features search ;;
  schemas)
    packages
    files operator "$operator" 'example/prometheus-operator-crd/*_servicemonitors.yaml example/prometheus-operator-crd/*_prometheusrules.yaml'
    files oci "$oci" 'schema/*.json'
    ;;
  *) fail "usage: tools.sh helm | compose | actionlint | schemas | mdbook" ;;
esac
