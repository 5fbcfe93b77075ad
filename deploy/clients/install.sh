#!/usr/bin/env bash
# Installs what checks readapi/openapi.yaml, in fixed versions, into bin/clients:
#
#   install.sh python       the generator of the Python client
#   install.sh typescript   the generator of the TypeScript client, and the compiler
#   install.sh lint         the linters
#   install.sh openapi-generator | openapi-typescript | oapi-codegen | pydantic
#                           the generators of make test-generators; pydantic is what the Python client of
#                           openapi-generator needs
#
# What is installed is not fetched again. Where it cannot be fetched, the script says so and ends with 3.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
part=${1:?python, typescript, lint, openapi-generator, openapi-typescript, oapi-codegen or pydantic}
dir=$here/../../bin/clients/$part

missing() {
  echo "the part $part cannot be installed here: $*"
  exit 3
}

case $part in
  python) versions=$(cat "$here/requirements.txt") ;;
  typescript) versions="@hey-api/openapi-ts@0.95.0 typescript@5.9.3" ;;
  openapi-generator) versions="7.25.0" ;;
  openapi-typescript) versions="openapi-typescript@7.13.0 openapi-fetch@0.17.0 typescript@5.9.3" ;;
  oapi-codegen) versions="v2.8.2" ;;
  pydantic) versions="pydantic==2.14.4 python-dateutil==2.9.0.post0 typing_extensions==4.16.0 urllib3==2.8.0" ;;
  lint) versions="@redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3" ;;
  *) echo "no part is named $part" >&2; exit 2 ;;
esac
if [[ -f $dir/versions && $(<"$dir/versions") == "$versions" ]]; then exit; fi
rm -rf "$dir"
mkdir -p "$dir"
if [[ $part == openapi-generator ]]; then
  command -v mvn >/dev/null || missing "there is no Maven"
  command -v java >/dev/null || missing "there is no Java"
  mvn -q -B dependency:copy "-Dartifact=org.openapitools:openapi-generator-cli:$versions" "-DoutputDirectory=$dir" \
    >"$dir/log" 2>&1 || missing "mvn failed: $(grep -m 1 -o 'ERROR.*' "$dir/log" || tail -n 1 "$dir/log")"
elif [[ $part == oapi-codegen ]]; then
  GOBIN=$dir GOFLAGS=-mod=mod go install "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@$versions" ||
    missing "go install failed"
elif [[ $part == pydantic ]]; then
  command -v python3 >/dev/null || missing "there is no python3"
  python3 -m venv "$dir" || missing "python3 makes no virtual environment"
  # shellcheck disable=SC2086 # a list of packages
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: $versions || missing "pip failed"
elif [[ $part == python ]]; then
  command -v python3 >/dev/null || missing "there is no python3"
  python3 -m venv "$dir" || missing "python3 makes no virtual environment"
  "$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --requirement "$here/requirements.txt" || missing "pip failed"
else
  command -v npm >/dev/null || missing "there is no npm"
  echo '{"private": true}' >"$dir/package.json"
  # shellcheck disable=SC2086 # a list of packages
  (cd "$dir" && npm install --no-save --no-package-lock --ignore-scripts --engine-strict --no-audit --no-fund --loglevel error $versions) ||
    missing "npm failed"
fi
printf '%s\n' "$versions" >"$dir/versions"
