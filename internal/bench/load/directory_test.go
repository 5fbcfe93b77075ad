package load

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
)

// directory is a server that keeps identities and the members of rules, and shows its one text to
// the members of the first.
type directory struct {
	mu      sync.Mutex
	traits  map[string]map[string]string
	rules   map[string]client.Rule
	asked   []string
	bulks   int
	text    string
	scoped  string
	stale   bool // recall never follows
	nothing bool // nobody is a member of anything
}

func (d *directory) members(slug string) []string {
	var members []string
	for name, traits := range d.traits {
		c := d.rules[slug].Conditions
		if !d.nothing && len(c) > 0 && slices.Contains(c[0].Values, traits["team"]) &&
			!slices.Contains(c[1].Values, traits["region"]) && traits["level"] != "" {
			members = append(members, name)
		}
	}
	return members
}

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var body json.RawMessage
	if r.ContentLength > 0 && json.NewDecoder(r.Body).Decode(&body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	read := func(into any) {
		if err := json.Unmarshal(body, into); err != nil {
			panic(err)
		}
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	var answer any = struct{}{}
	switch {
	case r.URL.Path == "/api/v1/identities/bulk":
		var rows []client.IdentityRow
		read(&rows)
		d.bulks++
		for _, row := range rows {
			d.traits[row.Identity] = row.Traits
		}
	case path[0] == "identities":
		var put client.IdentityRow
		read(&put)
		d.traits[path[1]] = put.Traits
	case path[0] == "audiences":
		if r.Method == http.MethodPut {
			var put struct{ Rule client.Rule }
			read(&put)
			d.rules[path[1]] = put.Rule
		}
		answer = client.Audience{Slug: path[1], MemberCount: int64(len(d.members(path[1])))}
	case path[0] == "recall":
		var q client.RecallRequest
		read(&q)
		d.asked = append(d.asked, q.Identity)
		page := client.RecallResponse{}
		if reached := d.scoped == "" || slices.Contains(d.members(d.scoped), q.Identity); reached && !d.stale {
			page.Results = []client.RecallResult{{Sources: []client.RecallSource{{SourceID: d.text}}}}
		}
		answer = page
	case r.Method == http.MethodGet:
		answer = client.IngestionStatus{Status: "completed", Settled: true}
	default:
		var in client.DataPoint
		read(&in)
		d.text, d.scoped = in.ID, in.Audience
		answer = client.Receipt{IngestionID: "send"}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

func startDirectory(t *testing.T) (*client.Client, *directory) {
	t.Helper()
	d := &directory{traits: map[string]map[string]string{}, rules: map[string]client.Rule{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "k")
	if err != nil {
		t.Fatal(err)
	}
	return c, d
}

func TestDirectory_FilledAndCounted(t *testing.T) {
	to, d := startDirectory(t)
	rate, err := Identities(t.Context(), to, 2500)
	if err != nil || len(d.traits) != 2500 || d.bulks != 3 || len(rate.Times) != 3 || rate.PerSecond <= 0 {
		t.Errorf("%d identities in %d bulk writes, %d times, %v", len(d.traits), d.bulks, len(rate.Times), err)
	}
	times, err := Rules(t.Context(), to, 200)
	if err != nil || len(times) != 200 || len(d.rules) != 200 {
		t.Errorf("%d rules, %d times, %v", len(d.rules), len(times), err)
	}
	for slug := range d.rules {
		if n := len(d.members(slug)); n == 0 || n == 2500 {
			t.Errorf("%s has %d members of 2,500: it selects nobody or everybody", slug, n)
		}
	}
	if times, err = Recomputes(t.Context(), to, 200, 5); err != nil || len(times) != 5 {
		t.Errorf("%d recomputes, %v", len(times), err)
	}
	before := Member(7919 % 2500).Traits["team"]
	if times, err = Puts(t.Context(), to, 2500, 20, 4); err != nil || len(times) != 20 {
		t.Errorf("%d puts, %v", len(times), err)
	}
	if after := d.traits[Member(7919%2500).Identity]["team"]; after == before || len(d.traits) != 2500 {
		t.Errorf("the team was %s and is %s, of %d identities", before, after, len(d.traits))
	}
	d.nothing = true
	if _, err = Recomputes(t.Context(), to, 200, 5); err == nil {
		t.Error("rules without members are taken for a measurement")
	}
}

func TestFollow_RecallFollowsAtOnce(t *testing.T) {
	to, d := startDirectory(t)
	if _, err := Rules(t.Context(), to, 1); err != nil {
		t.Fatal(err)
	}
	if err := Follow(t.Context(), to, "run", 3); err != nil {
		t.Error(err)
	}
	if d.scoped != RuleSlug(0) || len(d.asked) != 6 {
		t.Errorf("the text is scoped to %q, asked %d times", d.scoped, len(d.asked))
	}
	d.stale = true
	if err := Follow(t.Context(), to, "run", 3); err == nil || !strings.Contains(err.Error(), "follow") {
		t.Errorf("a recall that does not follow: %v", err)
	}
}

func TestCompare_SameQuestions(t *testing.T) {
	one, a := startDirectory(t)
	other, b := startDirectory(t)
	from := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	first, second, err := Compare(t.Context(), one, other, 100, 10, from, from.AddDate(1, 0, 0))
	if err != nil || len(first) != 10 || len(second) != 10 || !slices.Equal(a.asked, b.asked) {
		t.Errorf("%d and %d times, asked as %v and %v, %v", len(first), len(second), a.asked, b.asked, err)
	}
	a.stale, b.stale = true, true
	if _, _, err := Compare(t.Context(), one, other, 100, 10, from, from.AddDate(1, 0, 0)); err == nil {
		t.Error("recalls that find nothing are taken for a measurement")
	}
}
