package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	erasing "github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/erasure"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/export"
)

// No event names who sent again what others wrote, so these data points stay when the person is erased.
func TestErasePerson_Resends(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	own, _ := h.keys()
	h.send(own, "/ingest", "completed", point{"id": "note", "content": "Bo wrote this.", "identity": "bo"})
	h.must(own, http.MethodPost, api+"/ingest", point{"id": "note", "content": "Bo wrote this.", "identity": "ana"}, nil)

	server := operatorapi.Dial(h.dir)
	in := operatorapi.PersonRequest{Target: h.target(""), Project: "default", Identity: "ana"}
	found, err := operatorapi.FindPerson.Call(t.Context(), server, in)
	if err != nil || found.Newest+found.Earlier != 0 || !found.HasRecord {
		t.Errorf("found %+v, %v", found, err)
	}
	if s := h.erasePerson(in); len(s.Receipts) != 0 || !s.Record {
		t.Errorf("erased: %+v", s)
	}
	resent := 0
	for _, r := range h.events() {
		if stream.Category(r.Stream) != stream.DataPoint {
			continue
		}
		if bytes.Contains(r.Data, []byte(`"ana"`)) || bytes.Contains(r.Meta, []byte(`"ana"`)) {
			t.Errorf("%s names who sent it again", r.Type)
		}
		if r.Type == (datapoint.Resent{}).EventType() {
			resent++
		}
	}
	if resent != 1 {
		t.Errorf("%d events of sends without a revision", resent)
	}
	h.wants(own, http.MethodDelete, api+"/data-points/note", nil, http.StatusAccepted, "")

	// What is private to a person goes with her.
	h.send(own, "/ingest", "completed", point{"id": "own", "content": "The safe is green.", "identity": "eve", "private": true})
	in.Identity = "eve"
	if s := h.erasePerson(in); len(s.Receipts) != 1 || !s.Record {
		t.Errorf("erased: %+v", s)
	}
	h.wants(own, http.MethodDelete, api+"/data-points/own", nil, http.StatusNotFound, "data-point-not-found")
	var left int
	runtest.Must(t, h.storage.db.QueryRow(t.Context(), `select count(*) from directory.identities
		where identity = 'eve' and project_id = $1`, h.projectID("default")).Scan(&left))
	if left != 0 {
		t.Error("the record with its audience is there")
	}
}

// erasePerson begins an erasure, and returns its state once it has ended.
func (h *harness) erasePerson(in operatorapi.PersonRequest) erasing.PersonStatus {
	h.t.Helper()
	begun, err := operatorapi.ErasePerson.Call(h.t.Context(), operatorapi.Dial(h.dir), in)
	runtest.Must(h.t, err)
	return h.awaitErased(begun)
}

// awaitErased returns the state of an erasure once it has ended.
func (h *harness) awaitErased(begun operatorapi.PersonErasureID) (s erasing.PersonStatus) {
	h.t.Helper()
	runtest.Await(h.t, "the person is erased", func() bool {
		var err error
		s, err = operatorapi.PersonErasure.Call(h.t.Context(), operatorapi.Dial(h.dir), begun)
		runtest.Must(h.t, err)
		return s.Phase == erasure.Done
	})
	return s
}

// newGuardedHarness is a harness over an event store that can deny its user rights.
func newGuardedHarness(t *testing.T) (*harness, *clustertest.Guard) {
	n := nodetest.Start(t, node.Config{Insecure: true, SystemStream: true})
	guard := clustertest.NewGuard(t, n.Connection().Addr)
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.EventStore = guard.ConnectionString() }
	return h, guard
}

// A user of the event store without the right to delete: the deletion is answered, the missing right is named and
// counted, also by erase --now, and all of it ends once the right is given. Without the right to write, sends are
// refused with the reason, and taken once the right is given.
func TestServer_Denied(t *testing.T) {
	t.Parallel()
	h, guard := newGuardedHarness(t)
	h.start()
	key, _ := h.keys()
	h.sendTeaAndRecall()
	guard.Deny(eventstore.MayDelete)
	h.must(key, http.MethodDelete, api+"/data-points/a", nil, nil)
	runtest.Await(t, "/readyz shows that erasure is denied", func() bool {
		return strings.Contains(h.readyz().body, string(erasureDenied))
	})
	h.readyz().want(t, http.StatusOK).lacks(t, "$d")
	if text := h.remarks(true).ErasureDenied; !strings.Contains(text, `the right "$d" in the $acl of `) {
		t.Errorf("operators read %q", text)
	}
	h.exposes("annals_deletions_stuck 1")
	operator := operatorapi.Dial(h.dir)
	_, err := operatorapi.EraseNow.Call(t.Context(), operator, operatorapi.None{})
	if !errors.Is(err, operatorapi.ErrRefused) || !strings.Contains(err.Error(), `the right "$d"`) {
		t.Errorf("erase --now: %v", err)
	}
	guard.Deny()
	done, err := operatorapi.EraseNow.Call(t.Context(), operator, operatorapi.None{})
	if err != nil || done.Deletions != 1 || done.Left.Deletions != 0 {
		t.Errorf("with the right: %+v, %v", done, err)
	}
	h.readyz().want(t, http.StatusOK).lacks(t, "erasureDenied")
	h.exposes("annals_deletions_stuck 0")

	guard.Deny(eventstore.MayWrite)
	h.fetchAPI(key, http.MethodPost, api+"/ingest", point{"id": "b", "content": "Ana likes milk."}).
		want(t, http.StatusServiceUnavailable, "denies the service a right")
	guard.Deny()
	if sent := h.sendAll(key, "c", 2); !slices.Equal(sent, []string{"c0", "c1"}) {
		t.Errorf("acknowledged are %v", sent)
	}
}

// excepted reports whether an exception names a table.
func excepted(table string) bool {
	return slices.ContainsFunc(export.Exceptions(), func(e export.Exception) bool {
		return slices.ContainsFunc(e.Tables(), func(pattern string) bool {
			is, err := path.Match(pattern, table)
			return err == nil && is
		})
	})
}

// A table with text of people is in the copy of a person, or an exception names it.
func TestPersonCopy_EveryTableOfText(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	list := projectors(Config{Logger: logger}, &storage{}, stream.Namespaces{}, true, domainrecall.NewAnalyzers())
	tables := 0
	for _, p := range list {
		for _, table := range p.TextTables() {
			tables++
			if name := p.Name() + "." + table; !excepted(name) && !slices.Contains(export.Copied(), name) {
				t.Errorf("%s has texts: add it to the copy of a person, or to its exceptions", name)
			}
		}
	}
	if tables < len(export.Copied()) {
		t.Errorf("%d tables of text", tables)
	}
}

// lived is what a person left: words that are nowhere else.
type lived struct {
	*harness
	words map[string]string // by what they are in
}

func (l *lived) word(what string) string {
	w := runtest.Word()
	l.words[w] = what
	return w
}

// places are the tables that have a word.
func (l *lived) places(word string) (places []string) {
	l.t.Helper()
	rows, err := l.storage.db.Query(l.t.Context(), `select table_schema, table_name, column_name, data_type
		from information_schema.columns join information_schema.tables using (table_catalog, table_schema, table_name)
		where table_type = 'BASE TABLE' and data_type in ('text', 'bytea', 'json', 'jsonb')
			and table_schema not in ('pg_catalog', 'information_schema') order by 1, 2, 3`)
	runtest.Must(l.t, err)
	type column struct{ Schema, Table, Column, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	runtest.Must(l.t, err)
	for _, c := range columns {
		field := pgx.Identifier{c.Column}.Sanitize()
		holds := "position($1::text in " + field + "::text) > 0"
		if c.Type == "bytea" {
			holds = "position(convert_to($1::text, 'UTF8') in " + field + ") > 0"
		}
		var has bool
		runtest.Must(l.t, l.storage.db.QueryRow(l.t.Context(), "select exists (select from "+
			pgx.Identifier{c.Schema, c.Table}.Sanitize()+" where "+holds+")", word).Scan(&has))
		if name := c.Schema + "." + c.Table; has && !slices.Contains(places, name) {
			places = append(places, name)
		}
	}
	return places
}

// All that the erasure of a person removes is in the copy, or an exception names where it is.
func TestPersonCopy_HasWhatAnErasureRemoves(t *testing.T) {
	unraced(t)
	t.Parallel()
	l := &lived{harness: newHarness(t), words: map[string]string{}}
	l.start()
	own, _ := l.keys()
	name := l.word("the name")
	for n, what := range []string{"former traits", "present traits"} {
		l.must(own, http.MethodPut, api+"/identities/"+name,
			point{"traits": point{l.word(what): l.word(what), "city": fmt.Sprint(n)}}, nil)
	}
	l.must(own, http.MethodPut, api+"/audiences/team", point{"kind": "fixed", "identities": []string{name, "bo"}}, nil)
	for n, audience := range []string{"project", "team"} {
		l.send(own, "/ingest", "completed", point{
			"id": l.word("an id"), "content": fmt.Sprintf("I like %s. My editor is Helix %d.", l.word("a text"), n),
			"label": l.word("a label"), "metadata": point{"k": l.word("metadata")}, "identity": name, "audience": audience,
		})
	}
	l.send(own, "/ingest", "completed", point{"id": "shared", "content": "First " + l.word("an earlier text"), "identity": name})
	l.send(own, "/ingest", "completed", point{"id": "shared", "content": "Second " + l.word("a later text"), "identity": name})
	l.send(own, "/ingest", "completed", point{"id": "shared", "content": "Bo wrote this.", "identity": "bo"})
	l.send(own, "/ingest", "completed", point{"id": "about", "content": "Bo met " + name + ".", "identity": "bo"})
	l.must(own, http.MethodPost, api+"/recall", point{"query": "tea " + l.word("a question"), "identity": name}, nil)

	var copied bytes.Buffer
	sum, err := operatorapi.Dial(l.dir).ExportPerson(t.Context(), export.PersonRequest{Project: "default", Identity: name}, &copied)
	if err != nil || !sum.HasRecord || sum.Texts != 4 || sum.Revisions != 1 || sum.Memories < 2 || sum.Audiences != 1 ||
		sum.Naming == nil || *sum.Naming != 1 || sum.MoreNaming {
		t.Errorf("%+v, %v", sum, err)
	}
	var last export.PersonSummary
	lines := strings.Split(strings.TrimSuffix(copied.String(), "\n"), "\n")
	runtest.Must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	if last.Type != "end" || last.Texts != sum.Texts || len(last.NotIncluded) != len(export.Exceptions()) {
		t.Errorf("the last line is %s", lines[len(lines)-1])
	}
	before := map[string][]string{}
	for word := range l.words {
		before[word] = l.places(word)
	}
	if s := l.erasePerson(operatorapi.PersonRequest{Target: l.target(""), Project: "default", Identity: name}); len(s.Receipts) != 1 {
		t.Fatalf("erased: %+v", s)
	}
	removed := 0
	for word, what := range l.words {
		after := l.places(word)
		for _, table := range before[word] {
			if slices.Contains(after, table) {
				continue
			}
			removed++
			if !strings.Contains(copied.String(), word) && !excepted(table) {
				t.Errorf("%s leaves %s, and the copy has it not", what, table)
			}
		}
	}
	if removed < len(l.words) {
		t.Errorf("the erasure removed %d of %v", removed, before)
	}
}
