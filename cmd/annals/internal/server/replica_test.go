package server

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/runner"
)

// replicated is a service whose database has a streaming replica.
type replicated struct {
	*harness
	servers *pgtest.Replicated
	key     string // of the project
	manage  string
}

func startReplicated(t *testing.T) *replicated {
	t.Helper()
	servers := pgtest.NewReplicated(t)
	h := &harness{
		t: t, dir: filepath.Join(t.TempDir(), "data"), sends: map[string][]string{}, postgres: servers.Primary,
		set: func(c *Config) { c.PostgresReplica = servers.Replica },
	}
	h.start()
	credentials, err := datafolder.ReadCredentials(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	return &replicated{h, servers, credentials["ANNALS_PROJECT_KEY"], credentials["ANNALS_MANAGEMENT_KEY"]}
}

// reads returns how often reads of a kind had a result.
func (r *replicated) reads(kind, result string) (n string) {
	r.t.Helper()
	prefix := `annals_postgres_replica_reads_total{kind="` + kind + `",result="` + result + `"} `
	for line := range strings.Lines(r.metrics()) {
		if value, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(value)
		}
	}
	return "0"
}

// identities lists the names of the identities.
func (r *replicated) identities() (names []string) {
	r.t.Helper()
	var list struct {
		Identities []struct{ Identity string }
	}
	r.must(r.key, http.MethodGet, api+"/identities", nil, &list)
	for _, i := range list.Identities {
		names = append(names, i.Identity)
	}
	slices.Sort(names)
	return names
}

// recall returns the source ids that a query finds, with their contents.
func (r *replicated) recall(query string) map[string]string {
	r.t.Helper()
	var page struct {
		Results []struct {
			Content string
			Sources []struct{ SourceID string }
		}
	}
	r.must(r.key, http.MethodPost, api+"/recall", point{"query": query, "identity": "ana", "level": "high"}, &page)
	found := map[string]string{}
	for _, result := range page.Results {
		if len(result.Content) > len(found[result.Sources[0].SourceID]) {
			found[result.Sources[0].SourceID] = result.Content
		}
	}
	return found
}

// served calls until a read of a kind was served by the replica. Until that is in time, the primary
// answers.
func (r *replicated) served(kind string, call func()) {
	r.t.Helper()
	before := r.reads(kind, "served")
	runtest.Await(r.t, "the replica answers "+kind, func() bool {
		call()
		return r.reads(kind, "served") != before
	})
}

// long is a text that the gate does not read, so that recall reads it once it is chosen.
func long(text string) string { return text + strings.Repeat(" It is told at length.", 100) }

func TestReplica_Reads(t *testing.T) {
	t.Parallel()
	r := startReplicated(t)
	for _, name := range []string{"ana", "ben"} {
		r.must(r.key, http.MethodPut, api+"/identities/"+name, point{"traits": point{"team": "red"}}, nil)
	}
	rule := point{"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": []string{"red"}}}}
	r.must(r.key, http.MethodPut, api+"/audiences/red", point{"kind": "rule", "name": "Red", "rule": rule}, nil)
	text := long("Ana keeps marigolds in the greenhouse.")
	id := r.send(r.key, "/ingest", "completed", point{"id": "a", "content": text, "identity": "ana"})

	r.served("identities", func() {
		if names := r.identities(); !slices.Equal(names, []string{"ana", "ben"}) {
			t.Fatalf("identities %v", names)
		}
	})
	r.served("identity", func() {
		var ben struct{ Audiences []string }
		r.must(r.key, http.MethodGet, api+"/identities/ben", nil, &ben)
		if !slices.Equal(ben.Audiences, []string{"red"}) {
			t.Fatalf("audiences of ben: %v", ben.Audiences)
		}
	})
	r.served("audiences", func() {
		var list struct {
			Audiences []struct {
				Slug                     string
				MemberCount, MemoryCount int
			}
		}
		r.must(r.key, http.MethodGet, api+"/audiences", nil, &list)
		if len(list.Audiences) != 2 || list.Audiences[1].MemberCount != 2 || list.Audiences[0].MemoryCount == 0 {
			t.Fatalf("audiences %+v", list)
		}
	})
	r.served("projects", func() {
		var list struct{ Projects []struct{ MemoryCount int } }
		r.must(r.manage, http.MethodGet, api+"/projects", nil, &list)
		if len(list.Projects) != 1 || list.Projects[0].MemoryCount == 0 {
			t.Fatalf("projects %+v", list)
		}
	})
	r.served("status", func() {
		var status struct {
			Status  string
			Settled bool
		}
		r.must(r.key, http.MethodGet, api+"/ingest/"+id, nil, &status)
		if status.Status != "completed" || !status.Settled {
			t.Fatalf("status %+v", status)
		}
	})
	r.served("bodies", func() {
		if found := r.recall("marigolds in the greenhouse"); found["a"] != text {
			t.Fatalf("recalled %v", found)
		}
	})
}

// While the replica applies nothing, every answer is that of the primary: what was deleted is gone, and
// what was sent is there.
func TestReplica_Late(t *testing.T) {
	t.Parallel()
	r := startReplicated(t)
	for _, name := range []string{"ana", "ben"} {
		r.must(r.key, http.MethodPut, api+"/identities/"+name, point{"traits": point{}}, nil)
	}
	r.send(r.key, "/ingest", "completed", point{"id": "a", "content": long("Ana keeps marigolds."), "identity": "ana"})
	r.served("identities", func() { r.identities() })
	r.served("bodies", func() { r.recall("marigolds") })

	r.servers.Pause()
	before := r.reads("identities", "served")
	r.must(r.key, http.MethodDelete, api+"/identities/ben", nil, nil)
	r.must(r.key, http.MethodDelete, api+"/data-points/a", nil, nil)
	for range 3 {
		if names := r.identities(); !slices.Equal(names, []string{"ana"}) {
			t.Errorf("identities after the removal of one: %v", names)
		}
	}
	if status, body := r.call(r.key, http.MethodGet, api+"/identities/ben", nil); status != http.StatusNotFound {
		t.Errorf("a removed identity: %d %s", status, body)
	}
	if found := r.recall("marigolds"); len(found) > 0 {
		t.Errorf("recalled after its deletion: %v", found)
	}
	// The replica has no row of a new text, and counters from before the send.
	text := long("Ana keeps dahlias.")
	r.send(r.key, "/ingest", "completed", point{"id": "b", "content": text, "identity": "ana"})
	if found := r.recall("dahlias"); found["b"] != text {
		t.Errorf("recalled of what the replica does not have: %v", found)
	}
	if r.reads("identities", "served") != before || r.reads("identities", "late") == "0" {
		t.Errorf("a replica that lags served reads:\n%s", r.metrics())
	}
	r.servers.Resume()
	r.served("identities", func() {
		if names := r.identities(); !slices.Equal(names, []string{"ana"}) {
			t.Fatalf("identities %v", names)
		}
	})
}

// A replica that ends under load takes no answer with it, and is read again once it is back. A rebuild
// renames the schemas that it reads.
func TestReplica_Away(t *testing.T) {
	t.Parallel()
	r := startReplicated(t)
	r.must(r.key, http.MethodPut, api+"/identities/ana", point{"traits": point{}}, nil)
	r.served("identities", func() { r.identities() })
	sent := r.send(r.key, "/ingest", "completed", point{"content": "Bo likes pears."})
	r.underLoad(r.key, func() {
		r.servers.Stop()
		for range 10 {
			if names := r.identities(); len(names) != 1 {
				t.Errorf("identities %v", names)
			}
		}
		if !strings.Contains(r.metrics(), "annals_postgres_replica_up 0\n") {
			t.Error("a replica that ended counts as up")
		}
		r.servers.Start()
		r.served("status", func() { r.must(r.key, http.MethodGet, api+"/ingest/"+sent, nil, nil) })
	})
	for range 2 {
		if err := r.read.runtime.Rebuild(t.Context(), "directory", func(runner.RebuildProgress) {}); err != nil {
			t.Fatal(err)
		}
		r.served("identities", func() { r.identities() })
	}
}
