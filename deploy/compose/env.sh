#!/usr/bin/env bash
# Makes deploy/.env, or the file that is named, from .env.example with fresh secrets. If it exists already, each value in
# it stays: only secrets that are empty or missing are filled in. Only its owner can read the file.
set -euo pipefail
umask 077

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
example=$folder/.env.example file=${1:-$folder/.env} from=$folder/.env.example
[[ ! -e $file ]] || from=$file

# The secrets are what is empty in the example, and not commented out.
secrets=" $(sed -n 's/^\([A-Z_]*\)=$/\1/p' "$example" | tr '\n' ' ')"
fresh() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }

part=$(mktemp "$file.XXXXXX")
trap 'rm -f "$part"' EXIT
filled=0
while IFS= read -r line || [[ -n $line ]]; do
  name=${line%=}
  if [[ $line == *= && $secrets == *" $name "* ]]; then
    line=$name=$(fresh)
    filled=$((filled + 1))
  fi
  printf '%s\n' "$line"
done <"$from" >"$part"
for name in $secrets; do
  if ! grep -q "^$name=" "$part"; then
    printf '%s=%s\n' "$name" "$(fresh)" >>"$part"
    filled=$((filled + 1))
  fi
done

if [[ $from == "$file" ]]; then
  mv "$part" "$file"
else
  ln "$part" "$file" # fails if another run made it meanwhile
fi
chmod 600 "$file"
echo "$file: $filled secrets filled in; keep a copy of ANNALS_HASH_KEY outside of this machine"
