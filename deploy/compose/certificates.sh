#!/bin/sh
# Makes a certificate authority, and a certificate for each server. What exists is kept until 30 days before its end.
# usage: certificates.sh FOLDER NAME:USER...   (USER is the number of the user who may read the key)
set -eu
folder=$1
shift
mkdir -p "$folder/ca" "$folder/authority"
chmod 0755 "$folder" "$folder/ca"
chmod 0700 "$folder/authority"
key=$folder/authority/ca.key ca=$folder/ca/ca.crt

lasts() { [ -s "$1" ] && openssl x509 -in "$1" -noout -checkend 2592000 >/dev/null; }

if ! lasts "$ca"; then
  openssl req -x509 -newkey rsa:3072 -nodes -sha256 -days 3650 -subj "/O=Annals/CN=Annals CA" -keyout "$key" -out "$ca" \
    -addext "keyUsage=critical,keyCertSign,cRLSign"
  chmod 0644 "$ca"
fi

for server in "$@"; do
  name=${server%%:*} user=${server##*:}
  dir=$folder/$name
  if lasts "$dir/node.crt" && openssl verify -CAfile "$ca" "$dir/node.crt" >/dev/null 2>&1; then continue; fi
  # The nodes of a cluster know each other by one common name.
  case $name in eventstore-*) common=eventstoredb-node ;; *) common=$name ;; esac
  mkdir -p "$dir"
  chmod 0755 "$dir"
  printf '%s\n' "subjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1" "extendedKeyUsage=serverAuth,clientAuth" \
    "keyUsage=critical,digitalSignature,keyEncipherment" "basicConstraints=critical,CA:FALSE" >"$dir/extensions"
  openssl req -newkey rsa:2048 -nodes -sha256 -subj "/O=Annals/CN=$common" -keyout "$dir/node.key" -out "$dir/request"
  openssl x509 -req -sha256 -days 730 -in "$dir/request" -CA "$ca" -CAkey "$key" -CAcreateserial \
    -CAserial "$folder/authority/serial" -extfile "$dir/extensions" -out "$dir/node.crt"
  rm "$dir/request" "$dir/extensions"
  chmod 0644 "$dir/node.crt"
  chmod 0400 "$dir/node.key"
  if [ "$(id -u)" -eq 0 ]; then chown "$user" "$dir/node.key"; fi
done
