package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/export"
)

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
