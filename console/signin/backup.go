package signin

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/secret"
)

// A backup is lines of text, each some people with how they sign in, sealed with the number of the line. Sessions,
// links and failures are not in it: a restore ends them.
const (
	backupPeople = 200
	maxBackup    = 16 << 20 // bytes of a line
)

// lineID binds a line to its place.
func lineID(line uint64) uuid.UUID {
	id := uuid.UUID{15: 0}
	binary.BigEndian.PutUint64(id[8:], line)
	return id
}

// Dump writes how people sign in, sealed. A database without the tables has nothing.
func Dump(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, to io.Writer) error {
	s := &Service{Config: Config{DB: db, Sealer: sealer}}
	var exists bool
	err := db.QueryRow(ctx, `select to_regclass('ops.signin_people') is not null`).Scan(&exists)
	after := uuid.Nil
	for line := uint64(1); err == nil && exists; line++ {
		var rows string
		err = db.QueryRow(ctx, `with page as (select * from ops.signin_people where person_id > $1 order by person_id limit $2)
			select jsonb_build_object('people', (select jsonb_agg(p) from page p),
				'codes', (select jsonb_agg(c) from ops.signin_recovery_codes c where person_id in (select person_id from page)),
				'accounts', (select jsonb_agg(a) from ops.signin_accounts a where person_id in (select person_id from page))),
				(select max(person_id::text)::uuid from page) from page limit 1`, after, backupPeople).Scan(&rows, &after)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		var sealed string
		if err == nil {
			sealed, err = s.seal(lineID(line), rows)
		}
		if err == nil {
			_, err = fmt.Fprintln(to, sealed)
		}
	}
	return wrap("back up how people sign in", err)
}

// Load adds what Dump wrote, all or nothing. People who are there already stay as they are.
func Load(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, from io.Reader) error {
	s := &Service{Config: Config{DB: db, Sealer: sealer}}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxBackup)
	return s.within(ctx, "restore how people sign in", func(tx pgx.Tx) error {
		for line := uint64(1); lines.Scan(); line++ {
			rows, err := s.open(lineID(line), lines.Text())
			if err != nil {
				return err
			}
			for _, table := range []struct{ name, key string }{
				{"ops.signin_people", "people"}, {"ops.signin_recovery_codes", "codes"}, {"ops.signin_accounts", "accounts"},
			} {
				if _, err := tx.Exec(ctx, `insert into `+table.name+` select * from jsonb_populate_recordset(null::`+table.name+
					`, nullif($1::jsonb -> $2, 'null')) on conflict do nothing`, rows, table.key); err != nil {
					return err
				}
			}
		}
		return lines.Err()
	})
}
