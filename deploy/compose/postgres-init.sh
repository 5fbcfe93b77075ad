#!/bin/bash
# Runs once, when the database is made: a user for the replica, who may only follow.
set -euo pipefail
psql --set ON_ERROR_STOP=1 --set password="$POSTGRES_REPLICA_PASSWORD" --username "$POSTGRES_USER" <<'SQL'
create role replica login replication password :'password';
SQL
printf 'hostssl replication replica all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
