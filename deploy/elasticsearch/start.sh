#!/usr/bin/env bash
# Runs a genuine Elasticsearch on this machine, for tests and for trying it out: on free ports of the loopback address,
# with TLS, basic authentication and one node.
#
#   start.sh run COMMAND...   starts one, runs the command, stops it and removes its data; within such a command it
#                             only runs the command
#   start.sh start            starts one, prints its settings and leaves it running
#   start.sh stop             stops that one; its data stays, and the next start finds it
#
# The command, and whoever evaluates what start prints, gets ANNALS_TEST_ELASTICSEARCH, the address with user and
# password, and ANNALS_TEST_ELASTICSEARCH_CA, the file with the certificate to trust.
#
# ELASTICSEARCH_DIR is the folder of the data (bin/elasticsearch/server), ELASTICSEARCH_CACHE that of the download
# (bin/elasticsearch), ELASTICSEARCH_HEAP the heap (512m). Needs Java 17 or later, Maven, unzip, openssl and curl.
# The distribution lacks modules that production servers have; the adapter needs none of them.
set -euo pipefail

version=8.19.7
artifact=org.elasticsearch.distribution.integ-test-zip:elasticsearch:$version:zip
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${ELASTICSEARCH_CACHE:-$root/bin/elasticsearch}
dir=${ELASTICSEARCH_DIR:-$cache/server}
heap=${ELASTICSEARCH_HEAP:-512m}
user=annals
owner=

fail() {
  echo "Elasticsearch cannot be started: $*" >&2
  exit 1
}

need() {
  local missing=()
  for program in java mvn unzip openssl curl; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  ((${#missing[@]} == 0)) || fail "not installed here: ${missing[*]}"
}

# download fetches the server once, and unpacks it for this folder.
download() {
  local zip=$cache/elasticsearch-$version.zip
  mkdir -p "$cache"
  if [[ ! -f $zip ]]; then
    local part
    part=$(mktemp -d "$cache/download.XXXXXX")
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$part" >"$part/log" 2>&1 ||
      { tail -n 20 "$part/log" >&2; rm -rf "$part"; fail "the download by mvn failed"; }
    mv "$part/elasticsearch-$version.zip" "$zip"
    rm -rf "$part"
  fi
  [[ -d $dir/elasticsearch-$version ]] || unzip -q -d "$dir" "$zip" || fail "$zip cannot be unpacked; remove it"
}

# free_port prints a port that nothing listens on.
free_port() {
  local port
  for _ in {1..100}; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
  fail "no port is free"
}

# choose_user sets the command by which a program runs as a user other than root, as which Elasticsearch refuses to run:
# in a user namespace, or where that is forbidden as the user nobody.
choose_user() {
  if [[ $(id -u) -ne 0 ]]; then
    as_user=(env)
  elif unshare --user --map-user=1000 --map-group=1000 true 2>/dev/null; then
    as_user=(unshare --user --map-user=1000 --map-group=1000)
  elif command -v setpriv >/dev/null && id -u nobody >/dev/null 2>&1; then
    as_user=(setpriv --reuid nobody --clear-groups) owner=nobody
  else
    fail "root may start it only in a user namespace, and this machine allows none; start it as another user"
  fi
}

# give_away gives the files to the user that runs the server, if root does not run it as itself.
give_away() {
  [[ -n $owner ]] || return 0
  chmod 755 "$dir"
  chown -R "$owner" "$dir"
}

configure() {
  local home=$dir/elasticsearch-$version
  http_port=$(free_port)
  transport_port=$(free_port)
  if [[ ! -f $home/config/http.crt ]]; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=annals-test -addext subjectAltName=IP:127.0.0.1,DNS:localhost \
      -keyout "$home/config/http.key" -out "$home/config/http.crt" 2>/dev/null || fail "openssl made no certificate"
  fi
  cat >"$home/config/elasticsearch.yml" <<CONFIG
cluster.name: annals-test
node.name: node-1
discovery.type: single-node
network.host: 127.0.0.1
http.port: $http_port
transport.port: $transport_port
cluster.routing.allocation.disk.threshold_enabled: false
xpack.security.enabled: true
xpack.security.http.ssl.enabled: true
xpack.security.http.ssl.key: http.key
xpack.security.http.ssl.certificate: http.crt
CONFIG
  if [[ ! -f $dir/password ]]; then
    openssl rand -hex 16 >"$dir/password"
    give_away
    "${as_user[@]}" "$home/bin/elasticsearch-users" useradd "$user" -p "$(cat "$dir/password")" -r superuser >"$dir/users.log" 2>&1 ||
      { cat "$dir/users.log" >&2; fail "the user was not created"; }
  fi
  cat >"$dir/settings" <<SETTINGS
export ANNALS_TEST_ELASTICSEARCH=https://$user:$(cat "$dir/password")@127.0.0.1:$http_port
export ANNALS_TEST_ELASTICSEARCH_CA=$home/config/http.crt
SETTINGS
}

running() { [[ -f $dir/pid ]] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; }

answers() {
  curl -s -f -o /dev/null --max-time 5 --cacert "$ANNALS_TEST_ELASTICSEARCH_CA" \
    "${ANNALS_TEST_ELASTICSEARCH}/_cluster/health?wait_for_status=yellow&timeout=2s"
}

start() {
  if running; then return; fi
  need
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  java_home=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
  # Its temporary files go with its data.
  mkdir -p "$dir/tmp"
  export ES_JAVA_HOME=$java_home ES_JAVA_OPTS="-Xms$heap -Xmx$heap" ES_TMPDIR=$dir/tmp CLI_JAVA_OPTS=-Djava.io.tmpdir=$dir/tmp
  download
  choose_user
  configure
  # shellcheck disable=SC1091
  source "$dir/settings"
  give_away
  # The programs in between replace themselves, so this is the process of the server's launcher, which ends with it.
  "${as_user[@]}" "$dir/elasticsearch-$version/bin/elasticsearch" >"$dir/log" 2>&1 </dev/null &
  echo $! >"$dir/pid"
  local deadline=$((SECONDS + 300))
  until answers; do
    running || { tail -n 30 "$dir/log" >&2; fail "it ended at once; its last messages are above"; }
    ((SECONDS < deadline)) || { tail -n 30 "$dir/log" >&2; stop; fail "it does not answer; its last messages are above"; }
    sleep 0.5
  done
}

stop() {
  if running; then
    local pid
    pid=$(cat "$dir/pid")
    kill "$pid" 2>/dev/null || true
    for _ in {1..240}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.25
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$dir/pid"
}

case ${1:-} in
  start)
    start
    cat "$dir/settings"
    ;;
  stop) stop ;;
  run)
    shift
    [[ -z ${ANNALS_TEST_ELASTICSEARCH:-} ]] || exec "$@"
    mkdir -p "$cache"
    dir=$(mktemp -d "$cache/run.XXXXXX")
    trap 'stop; rm -rf "$dir"' EXIT
    start
    "$@"
    ;;
  *)
    sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
