#!/bin/bash
# Starts a streaming replica of the server "postgres": copies it at the first start, then follows it.
set -euo pipefail
if [[ ! -s $PGDATA/PG_VERSION ]]; then
  pg_basebackup --pgdata "$PGDATA" --wal-method stream --write-recovery-conf --checkpoint fast \
    --dbname "host=postgres user=replica sslmode=verify-full sslrootcert=/certificates/ca/ca.crt"
  chmod 0700 "$PGDATA"
fi
exec postgres "$@"
