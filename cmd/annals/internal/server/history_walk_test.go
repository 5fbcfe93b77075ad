package server

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/runtest"
)

// walkSteps are the steps of TestHistory_Walk. Each takes some milliseconds.
const walkSteps = 1000

// historyWalk is people who change things and read texts at random, with what History and Reads must say of that.
type historyWalk struct {
	*consoleHarness

	t      *testing.T
	random *rand.Rand
	key    string
	step   int
	// values are those of each setting now, by what History calls it.
	values map[string]string
	// changes are who changed what from what to what, oldest first, reads who read as which identity.
	changes, reads []string
	texts          []string
}

// change notes that somebody gives a setting a value. Giving it the value that it has is no change, and the first value
// has none before it.
func (w *historyWalk) change(by, kind, setting, value string) {
	former := w.values[setting]
	if former == value {
		return
	}
	w.values[setting] = value
	if former != "" {
		value = former + " → " + value
	}
	w.changes = append(w.changes, fmt.Sprintf("%s %s %s: %s", by, kind, setting, value))
}

func (w *historyWalk) one(of ...string) string { return of[w.random.IntN(len(of))] }

// do is one step.
func (w *historyWalk) do() {
	changer, writer, value := w.one("admin", "owner"), w.one("admin", "owner", "write"), strconv.Itoa(w.random.IntN(9)+30)
	sent := func(p page) { p.want(w.t, http.StatusSeeOther) }
	switch w.random.IntN(9) {
	case 0:
		sent(w.submit(changer, "/p/default", "name", "default", "description", "About "+value))
		w.change(w.mail(changer), "project.described", "description", "About "+value)
	case 1:
		sent(w.submit(changer, "/p/default/caps", "ingestionCap", value, "creditCap", ""))
		w.change(w.mail(changer), "project.caps-set", "ingestion cap", value)
	case 2:
		n := int64(w.random.IntN(9) + 30)
		w.setCaps("Annals", "default", &n, nil)
		w.change("operator", "project.caps-set", "ingestion cap", strconv.FormatInt(n, 10))
	case 3:
		sent(w.submit(writer, "/p/default/identity", "identity", "ana", "key", "desk", "value", value, "was", "", "before", ""))
		w.change(w.mail(writer), "identity.traits-merged", "trait desk", value)
	case 4:
		w.must(w.key, http.MethodPut, api+"/identities/bo", point{"traits": point{"room": value}}, nil)
		w.change("key default", "identity.traits-replaced", "trait room", value)
	case 5:
		sent(w.submit("owner", "/settings/organization/visits", "days", value))
		w.change(w.mail("owner"), "organization.visits-kept-set", "days", value)
	case 6:
		mode := w.one("off", "kept")
		sent(w.submit("owner", "/p/default/reads/setting", "mode", mode, "days", "365"))
		w.change(w.mail("owner"), "project.reads-set", "mode", mode)
	case 7:
		if len(w.texts) == 0 {
			return
		}
		id := w.texts[0]
		w.texts = w.texts[1:]
		sent(w.submit(writer, "/p/default/data/"+id+"/delete"))
		w.changes = append(w.changes, w.mail(writer)+" datapoint.deleted ")
	case 8:
		reader, as := w.one("admin", "owner", "write", "read"), w.one("ana", "bo")
		sent(w.submit(reader, "/p/default/recall", "query", "Who waters the plants?", "identity", as))
		if w.values["mode"] == "kept" {
			w.reads = append(w.reads, w.mail(reader)+" as "+as)
		}
	}
}

// rows are those of a list as a file of an Owner, oldest first, by the names of the columns.
func (w *historyWalk) rows(path string) (rows []map[string]string) {
	w.t.Helper()
	body := w.get("owner", path+"format=csv").want(w.t, http.StatusOK).Body
	file, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(body, "\ufeff"))).ReadAll()
	runtest.Must(w.t, err)
	for n := len(file) - 1; n > 0; n-- {
		row := make(map[string]string, len(file[n]))
		for column, cell := range file[n] {
			row[file[0][column]] = cell
		}
		rows = append(rows, row)
	}
	return rows
}

// For each change History names the person, the key or the operator, and both values; for each read the records name
// the person and the identity.
func TestHistory_Walk(t *testing.T) {
	w := &historyWalk{
		consoleHarness: newConsole(t), t: t, random: rand.New(rand.NewPCG(48, 1)),
		values: map[string]string{"description": "none"},
	}
	w.key, _ = w.keys()
	var items []point
	for n := range 120 {
		w.texts = append(w.texts, fmt.Sprint("text-", n))
		items = append(items, point{"id": w.texts[n], "content": fmt.Sprint("Note ", n, ": Bo waters the plants.")})
	}
	w.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "365").want(t, http.StatusSeeOther)
	w.values["mode"] = "kept"
	w.send(w.key, "/ingest/batch", "completed", point{"items": items})
	before := len(w.rows("/settings/history?"))
	for w.step = range walkSteps {
		w.do()
	}
	var got []string
	for _, row := range w.rows("/settings/history?")[before:] {
		by := row["by"]
		if strings.HasPrefix(by, "operator test (operator ") {
			by = "operator"
		}
		got = append(got, fmt.Sprint(by, " ", row["kind"], " ", row["changes"]))
	}
	if diff := cmp.Diff(w.changes, got); diff != "" {
		t.Errorf("history (-want +got):\n%.6000s", diff)
	}
	runtest.Await(t, "the records of all reads are in the log", func() bool {
		return len(w.rows("/p/default/reads?")) >= len(w.reads)
	})
	got = nil
	for _, row := range w.rows("/p/default/reads?") {
		got = append(got, row["name"]+" as "+row["identity"])
	}
	if diff := cmp.Diff(w.reads, got); diff != "" {
		t.Errorf("reads (-want +got):\n%.3000s", diff)
	}
}
