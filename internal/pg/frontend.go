package pg

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/annals-project/annals/internal/pg/schemas"
)

// frontend returns the side of the client of a connection, which sends statements with a prefix. A statement that is
// prepared is changed once.
func frontend(prefix schemas.Prefix) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(r, &prefixWriter{to: w, prefix: prefix})
	}
}

// prefixWriter changes the statements among the messages to the server. Each call of Write has whole messages.
type prefixWriter struct {
	to     io.Writer
	prefix schemas.Prefix
	// started is true after the first message, which alone has no type.
	started bool
	// unnamed are changed messages whose statement has no name, by what they were: those come with each use, as with a
	// transaction pooler. kept is what they take.
	unnamed map[string][]byte
	kept    int
}

// maxKept bounds the messages that a connection keeps, in bytes. entryBytes is what one takes beyond its text.
const (
	maxKept    = 512 << 10
	entryBytes = 128
)

// The types of the messages that have statements.
const (
	parseMessage = 'P'
	queryMessage = 'Q'
	// headLength is the length of the type and the length of a message.
	headLength = 5
)

// Write implements io.Writer.
func (s *prefixWriter) Write(p []byte) (int, error) {
	if !s.started {
		s.started = true
		return s.to.Write(p)
	}
	var out []byte
	done := 0 // of p, is in out
	for at := 0; len(p)-at >= headLength; {
		length := int(binary.BigEndian.Uint32(p[at+1:])) + 1
		if length < headLength || length > len(p)-at {
			break
		}
		if changed := s.message(p[at : at+length]); changed != nil {
			out = append(append(out, p[done:at]...), changed...)
			done = at + length
		}
		at += length
	}
	if done == 0 {
		return s.to.Write(p)
	}
	n, err := s.to.Write(append(out, p[done:]...))
	if err != nil {
		return min(n, len(p)), err
	}
	return len(p), nil
}

// message returns a message with its statements changed, nil if nothing changes.
func (s *prefixWriter) message(m []byte) []byte {
	if s.prefix == "" || m[0] != parseMessage || len(m) == headLength || m[headLength] != 0 {
		return s.change(m)
	}
	if changed, is := s.unnamed[string(m)]; is {
		return changed
	}
	changed := s.change(m)
	size := len(m) + len(changed) + entryBytes
	if size > maxKept {
		return changed
	}
	if s.unnamed == nil || s.kept+size > maxKept {
		s.unnamed, s.kept = map[string][]byte{}, 0
	}
	s.unnamed[string(m)] = changed
	s.kept += size
	return changed
}

func (s *prefixWriter) change(m []byte) []byte {
	if s.prefix == "" && !bytes.Contains(m, []byte(schemas.Call)) {
		return nil // in most cases
	}
	from := headLength
	switch m[0] {
	case queryMessage:
	case parseMessage:
		from += bytes.IndexByte(m[headLength:], 0) + 1 // the name of the statement is before it
	default:
		return nil
	}
	length := bytes.IndexByte(m[from:], 0)
	if length < 0 {
		return nil
	}
	sql := string(m[from : from+length])
	changed := s.prefix.Statement(sql)
	if changed == sql {
		return nil
	}
	out := make([]byte, 0, len(m)+len(changed)-len(sql))
	out = append(append(append(out, m[:from]...), changed...), m[from+length:]...)
	binary.BigEndian.PutUint32(out[1:], uint32(len(out)-1))
	return out
}

// batches changes the statements of batches that pgx sends without a frontend: those of the mode exec.
type batches struct{ prefix schemas.Prefix }

// TraceBatchStart implements pgx.BatchTracer.
func (b batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		query.SQL = b.prefix.Statement(query.SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (batches) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TraceQueryStart implements pgx.QueryTracer.
func (batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
