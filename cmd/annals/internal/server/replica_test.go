package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/runner"
)

// replicated is a service whose database has a streaming replica.
type replicated struct {
	*harness
	servers *pgtest.Replicated
	key     string // of the project
	*client.Client
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

// wantIdentities lists the names of the identities.
func (r *replicated) wantIdentities(want ...string) {
	r.t.Helper()
	list, err := r.ListIdentities(r.t.Context(), client.ListIdentitiesRequest{})
	runtest.Must(r.t, err)
	var names []string
	for _, i := range list.Identities {
		names = append(names, i.Identity)
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		r.t.Errorf("identities %v, want %v", names, want)
	}
}

// recalls returns the longest content that a query finds of a source.
func (r *replicated) recalls(query, source string) (text string) {
	r.t.Helper()
	page, err := r.Recall(r.t.Context(), client.RecallRequest{Query: query, Identity: "ana", Level: "high"})
	runtest.Must(r.t, err)
	for _, result := range page.Results {
		if result.Sources[0].SourceID == source && len(result.Content) > len(text) {
			text = result.Content
		}
	}
	return text
}

// served calls until a read of a kind was served by the replica. Until that is in time, the primary
// answers.
func (r *replicated) served(kind string, call func()) {
	r.t.Helper()
	before := r.reads(kind, "served")
	runtest.Await(r.t, "the replica answers "+kind, func() bool {
		call()
		return r.t.Failed() || r.reads(kind, "served") != before
	})
}

// long is a text that the gate does not read, so that recall reads it once it is chosen.
func long(text string) string { return text + strings.Repeat(" It is told at length.", 100) }

// Each kind of read is served by the replica. One that is late, or away, changes no answer.
func TestReplica(t *testing.T) {
	t.Parallel()
	r := &replicated{harness: newHarness(t), servers: pgtest.NewReplicated(t)}
	r.postgres = r.servers.Primary
	r.set = func(c *Config) { c.PostgresReplica = r.servers.Replica }
	r.start()
	var manage string
	r.key, manage = r.keys()
	var err error
	r.Client, err = client.New(r.urls.API, r.key)
	runtest.Must(t, err)
	for _, name := range []string{"ana", "ben"} {
		r.must(r.key, http.MethodPut, api+"/identities/"+name, point{"traits": point{"team": "red"}}, nil)
	}
	rule := point{"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": []string{"red"}}}}
	r.must(r.key, http.MethodPut, api+"/audiences/red", point{"kind": "rule", "name": "Red", "rule": rule}, nil)
	text := long("Ana keeps marigolds in the greenhouse.")
	id := r.send(r.key, "/ingest", "completed", point{"id": "a", "content": text, "identity": "ana"})

	r.served("identities", func() { r.wantIdentities("ana", "ben") })
	r.served("identity", func() {
		if ben, err := r.GetIdentity(t.Context(), "ben"); err != nil || !slices.Equal(ben.Audiences, []string{"red"}) {
			t.Fatalf("audiences of ben: %+v, %v", ben, err)
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
		r.must(manage, http.MethodGet, api+"/projects", nil, &list)
		if len(list.Projects) != 1 || list.Projects[0].MemoryCount == 0 {
			t.Fatalf("projects %+v", list)
		}
	})
	r.served("status", func() {
		if is, err := r.GetIngestion(t.Context(), id); err != nil || is.Status != "completed" || !is.Settled {
			t.Fatalf("status %+v, %v", is, err)
		}
	})
	r.served("bodies", func() {
		if found := r.recalls("marigolds in the greenhouse", "a"); found != text {
			t.Fatalf("recalled %v", found)
		}
	})
	r.isLate()
	r.isAway()
}

// isLate checks that while the replica applies nothing, every answer is that of the primary: what was deleted is gone,
// and what was sent is there.
func (r *replicated) isLate() {
	r.t.Helper()
	r.servers.Pause()
	before := r.reads("identities", "served")
	r.must(r.key, http.MethodDelete, api+"/identities/ben", nil, nil)
	r.must(r.key, http.MethodDelete, api+"/data-points/a", nil, nil)
	for range 3 {
		r.wantIdentities("ana")
	}
	r.wants(r.key, http.MethodGet, api+"/identities/ben", nil, http.StatusNotFound, "")
	if found := r.recalls("marigolds", "a"); found != "" {
		r.t.Errorf("recalled after its deletion: %v", found)
	}
	// The replica has no row of a new text, and counters from before the send.
	text := long("Ana keeps dahlias.")
	r.send(r.key, "/ingest", "completed", point{"id": "b", "content": text, "identity": "ana"})
	if found := r.recalls("dahlias", "b"); found != text {
		r.t.Errorf("recalled of what the replica does not have: %v", found)
	}
	if r.reads("identities", "served") != before || r.reads("identities", "late") == "0" {
		r.t.Errorf("a replica that lags served reads:\n%s", r.metrics())
	}
	r.servers.Resume()
	r.served("identities", func() { r.wantIdentities("ana") })
}

// isAway checks that a replica that ends under load takes no answer with it, and is read again once it is back. A
// rebuild renames the schemas that it reads.
func (r *replicated) isAway() {
	r.t.Helper()
	sent := r.send(r.key, "/ingest", "completed", point{"content": "Bo likes pears."})
	r.underLoad(r.key, func() {
		r.servers.Stop()
		for range 10 {
			r.wantIdentities("ana")
		}
		r.exposes("annals_postgres_replica_up 0")
		r.servers.Start()
		r.served("status", func() { r.must(r.key, http.MethodGet, api+"/ingest/"+sent, nil, nil) })
	})
	for range 2 {
		runtest.Must(r.t, r.read.runtime.Rebuild(r.t.Context(), "directory", func(runner.RebuildProgress) {}))
		r.served("identities", func() { r.wantIdentities("ana") })
	}
}
