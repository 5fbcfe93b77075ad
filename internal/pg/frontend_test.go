package pg

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// encode returns messages of a client in one text.
func encode(t *testing.T, messages ...pgproto3.FrontendMessage) []byte {
	t.Helper()
	var out []byte
	for _, m := range messages {
		var err error
		if out, err = m.Encode(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Only the texts of statements change. No message is added, so the server gets no statement more.
func TestFrontend(t *testing.T) {
	const plain, prefixed = "select from access.people where name = $1", "select from a_access.people where name = $1"
	bind := &pgproto3.Bind{PreparedStatement: "s", Parameters: [][]byte{[]byte("access.people"), nil}}
	rest := []pgproto3.FrontendMessage{
		bind, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}, &pgproto3.CopyData{Data: []byte("access.people")},
		&pgproto3.Sync{}, &pgproto3.Query{String: "commit"},
	}
	start := &pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "access.people"},
	}
	var got bytes.Buffer
	to := pgproto3.NewFrontend(nil, &prefixWriter{to: &got, prefix: "a_"})
	flush := func() {
		t.Helper()
		if err := to.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	to.Send(start)
	flush()
	to.Send(&pgproto3.PasswordMessage{Password: "access.people"})
	flush()
	to.Send(&pgproto3.Query{String: plain})
	to.Send(&pgproto3.Parse{Name: "s", Query: plain, ParameterOIDs: []uint32{25}})
	for _, m := range rest {
		to.Send(m)
	}
	to.Send(&pgproto3.Parse{Query: plain + ", usage.x"})
	flush()
	if err := to.SendUnbufferedEncodedCopyData(encode(t, &pgproto3.CopyData{Data: []byte("access.people")})); err != nil {
		t.Fatal(err)
	}
	want := append([]pgproto3.FrontendMessage{
		start, &pgproto3.PasswordMessage{Password: "access.people"}, &pgproto3.Query{String: prefixed},
		&pgproto3.Parse{Name: "s", Query: prefixed, ParameterOIDs: []uint32{25}},
	}, rest...)
	want = append(want, &pgproto3.Parse{Query: prefixed + ", a_usage.x"}, &pgproto3.CopyData{Data: []byte("access.people")})
	if !bytes.Equal(got.Bytes(), encode(t, want...)) {
		t.Errorf("sent %q", got.Bytes())
	}
}

// limited writes up to its length, and then fails.
type limited struct{ left int }

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	if l.left -= n; n < len(p) {
		return n, errFull
	}
	return n, nil
}

var errFull = errors.New("full")

// A failed write reports whether anything was sent: pgx repeats a statement of which nothing was.
func TestFrontend_FailedWrite(t *testing.T) {
	message := encode(t, &pgproto3.Query{String: "select from access.people"})
	for _, room := range []int{0, 3, len(message) + 1} {
		n, err := (&prefixWriter{to: &limited{room}, prefix: "a_", started: true}).Write(message)
		if !errors.Is(err, errFull) || (n == 0) != (room == 0) || n > len(message) {
			t.Errorf("room for %d: %d, %v", room, n, err)
		}
	}
	n, err := (&prefixWriter{to: &limited{100}, prefix: "a_", started: true}).Write(message)
	if err != nil || n != len(message) {
		t.Errorf("%d of %d, %v", n, len(message), err)
	}
}

// What is no whole message goes on as it is.
func TestFrontend_NoMessage(t *testing.T) {
	whole := encode(t, &pgproto3.Query{String: "select from access.people"})
	for _, p := range [][]byte{
		{},
		{'Q'},
		{'Q', 0, 0, 0, 0, 'x'},
		{'Q', 255, 255, 255, 255, 'x'},
		whole[:len(whole)-1],
		{'P', 0, 0, 0, 5, 'x'},
		{'Q', 0, 0, 0, 5, 'x'},
	} {
		var got bytes.Buffer
		if _, err := (&prefixWriter{to: &got, prefix: "a_", started: true}).Write(p); err != nil || !bytes.Equal(got.Bytes(), p) {
			t.Errorf("%q: %q, %v", p, got.Bytes(), err)
		}
	}
}

func TestNewPool_WrongPrefix(t *testing.T) {
	for _, prefix := range []string{"pg_", `a"; drop`} {
		if _, err := NewPool(t.Context(), "postgres://a@127.0.0.1:1/a", SchemaPrefix(prefix)); err == nil {
			t.Errorf("%s is accepted", prefix)
		}
	}
}

// What is kept of statements without a name changes nothing, and is bounded.
func TestFrontend_Kept(t *testing.T) {
	send := func(w *prefixWriter, query string) string {
		t.Helper()
		var got bytes.Buffer
		w.to = &got
		if _, err := w.Write(encode(t, &pgproto3.Parse{Query: query})); err != nil {
			t.Fatal(err)
		}
		return got.String()
	}
	w := &prefixWriter{prefix: "a_", started: true}
	for i := range 3 {
		if got := send(w, "select from usage.x"); !strings.Contains(got, "select from a_usage.x") || len(w.unnamed) != 1 {
			t.Errorf("time %d: %q, %d kept", i, got, len(w.unnamed))
		}
	}
	if got := send(w, "select 1"); !strings.Contains(got, "select 1") || len(w.unnamed) != 2 {
		t.Errorf("%q, %d kept", got, len(w.unnamed))
	}
	for i := range 3 * maxKept / entryBytes / 10 {
		send(w, fmt.Sprintf("select %d from usage.x where '%s' = ''", i, strings.Repeat("x", 1000)))
		if w.kept > maxKept {
			t.Fatalf("%d bytes are kept", w.kept)
		}
	}
	before := w.kept
	if got := send(w, "select from usage.x /* "+strings.Repeat("x", maxKept)+"*/"); !strings.Contains(got, " a_usage.x") {
		t.Error("a long statement is not changed")
	}
	if w.kept != before {
		t.Error("a statement that is longer than the bound is kept")
	}
}
