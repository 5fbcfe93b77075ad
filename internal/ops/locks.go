package ops

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/pg/schemas"
)

// awaited names a table of some schemas for which sessions of the role have waited for seconds, and a session that
// holds it. A wait for a row is none: those are short.
const awaited = `select coalesce((select l.relation::regclass::text || coalesce(', which session ' ||
		(pg_blocking_pids(l.pid))[1] || ' has locked', '')
	from pg_locks l join pg_stat_activity a on a.pid = l.pid
		join pg_class c on c.oid = l.relation join pg_namespace n on n.oid = c.relnamespace
	where not l.granted and l.locktype = 'relation' and a.usename = current_user and n.nspname::text = any($1::text[])
		and l.database = (select oid from pg_database where datname = current_database())
		and l.waitstart < clock_timestamp() - interval '5 seconds'
	order by l.waitstart limit 1), '')`

// AwaitedLock returns the table for which statements of the service have waited the longest, "" if none has for five
// seconds: somebody else holds a lock on it.
func AwaitedLock(ctx context.Context, db *pgxpool.Pool) (table string, err error) {
	prefix, names := pg.SchemaPrefixOf(db), schemas.Names()
	for i, name := range names {
		names[i] = prefix.Name(name)
	}
	if err := db.QueryRow(ctx, awaited, names).Scan(&table); err != nil {
		return "", fmt.Errorf("look for awaited locks: %w", err)
	}
	return table, nil
}
