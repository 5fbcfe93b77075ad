package signin

import (
	"bufio"
	"context"
	"encoding/binary"
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
	type page struct {
		Rows string
		Last uuid.UUID
	}
	exists, _, err := one(ctx, db, pgx.RowTo[bool], `select to_regclass('ops.signin_people') is not null`)
	at := page{}
	for line := uint64(1); err == nil && exists; line++ {
		at, exists, err = one(ctx, db, pgx.RowToStructByPos[page],
			`with page as (select * from ops.signin_people where person_id > $1 order by person_id limit $2)
			select jsonb_build_object('people', (select jsonb_agg(p) from page p),
				'codes', (select jsonb_agg(c) from ops.signin_recovery_codes c where person_id in (select person_id from page)),
				'accounts', (select jsonb_agg(a) from ops.signin_accounts a where person_id in (select person_id from page))),
				(select max(person_id::text)::uuid from page) from page limit 1`, at.Last, backupPeople)
		if err != nil || !exists {
			break
		}
		sealed := ""
		if sealed, err = s.seal(lineID(line), at.Rows); err == nil {
			_, err = fmt.Fprintln(to, sealed)
		}
	}
	return err
}

// Load adds what Dump wrote, all or nothing. People who are there already stay as they are.
func Load(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, from io.Reader) error {
	s := &Service{Config: Config{DB: db, Sealer: sealer}}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxBackup)
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for line := uint64(1); lines.Scan(); line++ {
			rows, err := s.open(lineID(line), lines.Text())
			for _, list := range [][2]string{
				{"ops.signin_people", "people"}, {"ops.signin_recovery_codes", "codes"}, {"ops.signin_accounts", "accounts"},
			} {
				if table := list[0]; err == nil {
					_, err = exec(ctx, tx, `insert into `+table+` select * from jsonb_populate_recordset(null::`+table+
						`, nullif($1::jsonb -> $2, 'null')) on conflict do nothing`, rows, list[1])
				}
			}
			if err != nil {
				return err
			}
		}
		return lines.Err()
	})
}
