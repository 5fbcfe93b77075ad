package requestlog

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/internal/pgarray"
)

const (
	// scannedRows and scannedBodies are how many rows and bodies are read at once while a person is looked for.
	scannedRows   = 2000
	scannedBodies = 32
)

// BlankPerson removes an identity from the calls of a project, also from those that are still in the memory of any
// process, and returns how many it changed. A call as this identity or about it loses its bodies, and its row the
// identity, the headers and the parameters of its path. Any other call loses its bodies if the identity stands in them
// as a word, or may stand in a part of them that was not stored. It may be repeated; Tables names the partitions to
// vacuum.
func (b *Blanker) BlankPerson(ctx context.Context, project uuid.UUID, identity string) (calls int, err error) {
	if err := b.recordProject(ctx, project); err != nil {
		return 0, fmt.Errorf("record a project with a blanked person: %w", err)
	}
	// A rerun must name the partitions too, whatever an interrupted run has changed.
	if err := b.dirtyAll(ctx); err != nil {
		return 0, fmt.Errorf("list partitions: %w", err)
	}
	p := person{names: []string{identity}}
	if stored := redactText(identity, maxIdentity); stored != identity {
		p.names = append(p.names, stored)
	}
	rows, err := b.blankRows(ctx, project, p)
	if err != nil {
		return rows, fmt.Errorf("blank the calls of a person: %w", err)
	}
	bodies, err := b.blankBodies(ctx, project, p)
	if err != nil {
		err = fmt.Errorf("blank the bodies of calls about a person: %w", err)
	}
	return rows + bodies, err
}

// recordProject makes every later flush strip the calls that it has in memory, and waits for the flushes in progress.
func (b *Blanker) recordProject(ctx context.Context, project uuid.UUID) error {
	return pgx.BeginTxFunc(ctx, b.DB, blanking, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(deletionLock)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into ops.blanked_projects (project_id, blanked_at) values ($1, clock_timestamp())
			on conflict (project_id) do update set blanked_at = excluded.blanked_at`, project)
		return err
	})
}

// dirtyAll notes all partitions as to be vacuumed.
func (b *Blanker) dirtyAll(ctx context.Context) error {
	names := []string{}
	for _, p := range partitioned {
		rows, err := b.DB.Query(ctx, `select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
			where i.inhparent = to_regclass('ops.' || $1)`, p.table)
		if err != nil {
			return err
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		names = append(names, some...)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty == nil {
		b.dirty = map[string]bool{}
	}
	for _, name := range names {
		b.dirty[name] = true
	}
	return nil
}

// callKey is the place of a call in the tables.
type callKey struct {
	receivedAt time.Time
	requestID  uuid.UUID
}

// firstCall is before every call.
var firstCall = callKey{receivedAt: time.Unix(0, 0)}

// blankRows blanks the calls as an identity or about it.
func (b *Blanker) blankRows(ctx context.Context, project uuid.UUID, p person) (calls int, err error) {
	for at := firstCall; ; {
		rows, err := b.DB.Query(ctx, `select r.received_at, r.request_id, r.path, coalesce(r.identity, ''), r.request_headers,
				r.response_headers, coalesce(r.webhook, '')
			from ops.requests r where r.project_id = $1 and (r.received_at, r.request_id) > ($2, $3)
			order by r.received_at, r.request_id limit $4`, project, at.receivedAt, at.requestID, scannedRows)
		if err != nil {
			return calls, err
		}
		var found []callKey
		var path, identity, request, response, webhook string
		read := 0
		_, err = pgx.ForEachRow(rows, []any{&at.receivedAt, &at.requestID, &path, &identity, &request, &response, &webhook},
			func() error {
				read++
				if clear, err := url.PathUnescape(path); err == nil {
					path += "\n" + clear
				}
				if p.is(identity) || p.standsIn(path) || p.standsIn(request, response, webhook) {
					found = append(found, at)
				}
				return nil
			})
		if err != nil {
			return calls, err
		}
		if err := b.blankCalls(ctx, project, found); err != nil {
			return calls, err
		}
		if calls += len(found); read < scannedRows {
			return calls, nil
		}
	}
}

// blankCalls removes what is text in the rows of calls, and their bodies.
func (b *Blanker) blankCalls(ctx context.Context, project uuid.UUID, calls []callKey) error {
	if len(calls) == 0 {
		return nil
	}
	times := pgarray.Column(calls, func(k callKey) time.Time { return k.receivedAt })
	ids := pgarray.IDs(calls, func(k callKey) uuid.UUID { return k.requestID })
	return pgx.BeginTxFunc(ctx, b.DB, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update ops.requests r set identity = null, path = split_part(k.endpoint, ' ', 2),
				request_headers = '{}', response_headers = '{}', webhook = null
			from unnest($2::timestamptz[], $3::uuid[]) c (received_at, request_id), ops.request_kinds k
			where r.project_id = $1 and r.received_at = c.received_at and r.request_id = c.request_id and k.kind = r.kind`,
			project, times, ids)
		if err == nil {
			err = deleteBodiesOf(ctx, tx, project, times, ids)
		}
		return err
	})
}

func deleteBodiesOf(ctx context.Context, tx pgx.Tx, project uuid.UUID, times []time.Time, ids []uuid.UUID) error {
	_, err := tx.Exec(ctx, `delete from ops.request_payloads p using unnest($2::timestamptz[], $3::uuid[]) c (received_at, request_id)
		where p.project_id = $1 and p.received_at = c.received_at and p.request_id = c.request_id`, project, times, ids)
	return err
}

// blankBodies removes the bodies of calls that a person stands in, or may stand in.
func (b *Blanker) blankBodies(ctx context.Context, project uuid.UUID, p person) (calls int, err error) {
	for at := firstCall; ; {
		rows, err := b.DB.Query(ctx, `select p.received_at, p.request_id, k.endpoint, k.status, p.request_truncated, p.request,
				p.response
			from ops.request_payloads p
			join ops.requests r on r.project_id = p.project_id and r.received_at = p.received_at and r.request_id = p.request_id
			join ops.request_kinds k on k.kind = r.kind
			where p.project_id = $1 and (p.received_at, p.request_id) > ($2, $3)
			order by p.received_at, p.request_id limit $4`, project, at.receivedAt, at.requestID, scannedBodies)
		if err != nil {
			return calls, err
		}
		var found []callKey
		var endpoint string
		var status, read int
		var truncated bool
		var request, response []byte
		_, err = pgx.ForEachRow(rows,
			[]any{&at.receivedAt, &at.requestID, &endpoint, &status, &truncated, &request, &response},
			func() error {
				read++
				carries, err := p.isIn(request, response)
				if carries || truncated && mayHideAPerson(endpoint, status) {
					found = append(found, at)
				}
				return err
			})
		if err != nil {
			return calls, err
		}
		if len(found) > 0 {
			err := pgx.BeginTxFunc(ctx, b.DB, pgx.TxOptions{}, func(tx pgx.Tx) error {
				return deleteBodiesOf(ctx, tx, project, pgarray.Column(found, func(k callKey) time.Time { return k.receivedAt }),
					pgarray.IDs(found, func(k callKey) uuid.UUID { return k.requestID }))
			})
			if err != nil {
				return calls, err
			}
		}
		if calls += len(found); read < scannedBodies {
			return calls, nil
		}
	}
}

// mayHideAPerson reports whether the stored part of a request body may hold words of a person whose name stands in the
// other part. The bodies of sends that were accepted go with their data points.
func mayHideAPerson(endpoint string, status int) bool {
	return strings.Contains(endpoint, "/identities") || strings.Contains(endpoint, "/audiences") ||
		strings.Contains(endpoint, "/ingest") && status >= 400
}

// person is an identity that is looked for: as it was sent, and as the log stores it.
type person struct{ names []string }

func (p person) is(identity string) bool { return slices.Contains(p.names, identity) }

// isIn reports whether the person stands in a stored body, also in escapes of JSON.
func (p person) isIn(stored ...[]byte) (bool, error) {
	for _, s := range stored {
		body, err := unpack(s)
		if err != nil {
			return false, err
		}
		if p.standsIn(string(body)) || bytes.ContainsRune(body, '\\') && p.standsIn(unescape(body)) {
			return true, nil
		}
	}
	return false, nil
}

// standsIn reports whether the person stands in any of the texts, as a word.
func (p person) standsIn(texts ...string) bool {
	for _, text := range texts {
		for _, name := range p.names {
			if isWordOf(text, name) {
				return true
			}
		}
	}
	return false
}

// isWordOf reports whether a name stands in a text without a letter or digit next to it. The name "al" is not in "all".
func isWordOf(text, name string) bool {
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	for from := 0; ; {
		at := strings.Index(text[from:], name)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(name):])
		if !(isLetter(first) && isLetter(before) || isLetter(last) && isLetter(after)) {
			return true
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		from = at + size
	}
}

func isLetter(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// unescape replaces the escapes of JSON strings, also in a body that was cut.
func unescape(body []byte) string {
	var b strings.Builder
	b.Grow(len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 == len(body) {
			b.WriteByte(body[i])
			continue
		}
		i++
		switch body[i] {
		case 'n', 'r', 't', 'b', 'f':
			b.WriteByte(' ')
		case 'u':
			r, size := escapedRune(body[i+1:])
			b.WriteRune(r)
			i += size
		default:
			b.WriteByte(body[i])
		}
	}
	return b.String()
}

// escapedRune reads what follows \u, with a second half if there is one.
func escapedRune(rest []byte) (r rune, size int) {
	half := func(digits []byte) (rune, bool) {
		if len(digits) < 4 {
			return 0, false
		}
		n, err := strconv.ParseUint(string(digits[:4]), 16, 32)
		return rune(n), err == nil
	}
	r, ok := half(rest)
	if !ok {
		return utf8.RuneError, 0
	}
	if r >= 0xD800 && r < 0xDC00 && len(rest) >= 10 && rest[4] == '\\' && rest[5] == 'u' {
		if low, ok := half(rest[6:]); ok && low >= 0xDC00 && low < 0xE000 {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, 10
		}
	}
	return r, 4
}
