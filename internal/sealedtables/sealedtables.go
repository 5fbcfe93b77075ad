// Package sealedtables writes tables of schema ops to a backup, sealed, and reads them back.
//
// A backup is lines of text, each some rows of a table, sealed with the number of the line.
package sealedtables

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/secret"
)

// Table is a table that a backup holds.
type Table struct {
	// Key names the rows in a backup, and never changes. Name is the table, with the schema.
	Key, Name string
}

const (
	rowsOfLine = 200
	maxLine    = 16 << 20 // bytes
)

// lineID binds a line to its place.
func lineID(line uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], line)
	return id
}

// Dump writes the rows of tables, as they are at one time. Tables that do not exist have none.
func Dump(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, to io.Writer, tables ...Table) error {
	out := &lines{sealer: sealer, to: to}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, db, snapshot, func(tx pgx.Tx) error {
		for _, t := range tables {
			if err := out.table(ctx, tx, t); err != nil {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("back up tables: %w", err)
	}
	return nil
}

// lines writes sealed lines.
type lines struct {
	sealer *secret.Sealer
	to     io.Writer
	count  uint64
}

func (l *lines) table(ctx context.Context, tx pgx.Tx, t Table) error {
	var exists bool
	if err := tx.QueryRow(ctx, `select to_regclass('`+t.Name+`') is not null`).Scan(&exists); err != nil || !exists {
		return err
	}
	rows, err := tx.Query(ctx, `select to_jsonb(t) from `+t.Name+` t`)
	if err != nil {
		return err
	}
	var page []json.RawMessage
	var row string
	_, err = pgx.ForEachRow(rows, []any{&row}, func() error {
		if page = append(page, json.RawMessage(row)); len(page) < rowsOfLine {
			return nil
		}
		err := l.write(t, page)
		page = nil
		return err
	})
	if err == nil && len(page) > 0 {
		err = l.write(t, page)
	}
	return err
}

func (l *lines) write(t Table, page []json.RawMessage) error {
	text, err := json.Marshal(map[string]any{t.Key: page})
	if err != nil {
		return err
	}
	l.count++
	sealed, err := l.sealer.SealText(lineID(l.count), string(text))
	if err == nil {
		_, err = fmt.Fprintln(l.to, sealed)
	}
	return err
}

// Load adds what Dump wrote, all or nothing. Rows that are there already stay as they are.
func Load(ctx context.Context, db *pgxpool.Pool, sealer *secret.Sealer, from io.Reader, tables ...Table) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, maxLine)
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for line := uint64(1); in.Scan(); line++ {
			rows, err := sealer.OpenText(lineID(line), in.Text())
			if err != nil {
				return err
			}
			for _, t := range tables {
				if _, err := tx.Exec(ctx, `insert into `+t.Name+` select * from jsonb_populate_recordset(null::`+t.Name+
					`, nullif($1::jsonb -> $2, 'null')) on conflict do nothing`, rows, t.Key); err != nil {
					return err
				}
			}
		}
		return in.Err()
	})
	if err != nil {
		return fmt.Errorf("restore tables: %w", err)
	}
	return nil
}
