package elastic_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// searched is a scripted server that finds every document that was sent to it, whatever the words, except the word
// unknown: no document has that.
type searched struct {
	*scripted
	t *testing.T
	// records are those of the documents of a group.
	records map[string][]string
	// near reports whether the dictionary has a word that is near to any.
	near bool
	// generation is the id of the one in use.
	generation string
	// requests are the searches of all kinds, by the last part of their path.
	requests []string
	// answers changes the answers of a search of several parts by an alias, unless it is nil.
	answers func(alias string, answers []string) []string
}

const unknown = "heliz"

func newSearched(t *testing.T) *searched {
	t.Helper()
	s := &searched{scripted: newScripted(t, false), t: t, records: map[string][]string{}, generation: generationID}
	s.Config.Handler = http.HandlerFunc(s.serve)
	return s
}

func (s *searched) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := ""
	s.set(func() {
		switch kind := path.Base(r.URL.Path); kind {
		case "_bulk":
			s.keep(body)
		case "_mapping":
			answer = fmt.Sprintf(`{"annals-v5-000001":{"mappings":{"_meta":{"format":"v5","generation":%q,"analysis":%d}}}}`,
				s.generation, indextest.Analysis)
		case "_search", "_msearch":
			s.requests = append(s.requests, kind)
			if answer = s.count(body); kind == "_msearch" {
				answer = s.find(path.Base(path.Dir(r.URL.Path)), body)
			}
		}
	})
	if answer == "" {
		s.scripted.serve(w, r)
		return
	}
	w.Header().Set("X-Elastic-Product", "Elasticsearch")
	_, _ = io.WriteString(w, answer)
}

// keep keeps the records of the documents of a bulk request.
func (s *searched) keep(body []byte) {
	for line := range bytes.Lines(body) {
		var document struct {
			Group  string `json:"g"`
			Record string `json:"c"`
		}
		if err := json.Unmarshal(line, &document); err != nil {
			s.t.Error(err)
		}
		if document.Group != "" {
			s.records[document.Group] = append(s.records[document.Group], document.Record)
		}
	}
}

// find answers a request with several searches.
func (s *searched) find(alias string, body []byte) string {
	var answers []string
	decoder := json.NewDecoder(bytes.NewReader(body))
	for decoder.More() {
		var where struct {
			Routing    string `json:"routing"`
			Preference string `json:"preference"`
			Partial    *bool  `json:"allow_partial_search_results"`
		}
		var search struct {
			Size  int `json:"size"`
			Query struct {
				Bool struct {
					Filter []struct {
						Term map[string]string `json:"term"`
					} `json:"filter"`
				} `json:"bool"`
			} `json:"query"`
		}
		if err := errors.Join(decoder.Decode(&where), decoder.Decode(&search)); err != nil {
			s.t.Error(err)
			return "{}"
		}
		group := search.Query.Bool.Filter[0].Term["g"]
		project, _, _ := strings.Cut(group, ":")
		if where.Routing != project || where.Preference != project || where.Partial == nil || *where.Partial {
			s.t.Errorf("a search of %s goes to %+v", group, where)
		}
		var hits []string
		for _, record := range s.records[group][:min(search.Size, len(s.records[group]))] {
			hits = append(hits, fmt.Sprintf(`{"fields":{"c":[%q]}}`, record))
		}
		answers = append(answers, `{"status":200,"hits":{"hits":[`+strings.Join(hits, ",")+`]}}`)
	}
	if s.answers != nil {
		answers = s.answers(alias, answers)
	}
	return `{"responses":[` + strings.Join(answers, ",") + `]}`
}

// aggregation counts documents by filters, or does so within another one.
type aggregation struct {
	Filters struct {
		Filters []struct {
			Term map[string]string `json:"term"`
		} `json:"filters"`
	} `json:"filters"`
	Aggs map[string]aggregation `json:"aggs"`
}

// count answers a request for counts and for words that are near.
func (s *searched) count(body []byte) string {
	var asked struct {
		Aggs    map[string]aggregation `json:"aggs"`
		Suggest map[string]struct {
			Text string `json:"text"`
		} `json:"suggest"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return "{}"
	}
	suggested := map[string]any{}
	for name, is := range asked.Suggest {
		options := []map[string]string{}
		if s.near {
			options = append(options, map[string]string{"text": strings.TrimSuffix(is.Text, "z") + "x"})
		}
		suggested[name] = []map[string]any{{"options": options}}
	}
	text, err := json.Marshal(map[string]any{"aggregations": s.counts(asked.Aggs), "suggest": suggested})
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

func (s *searched) counts(asked map[string]aggregation) map[string]any {
	counts := map[string]any{}
	for name, a := range asked {
		if len(a.Aggs) > 0 {
			counts[name] = s.counts(a.Aggs)
			continue
		}
		buckets := []map[string]int{}
		for _, f := range a.Filters.Filters {
			n := 1
			if group, is := f.Term["g"]; is {
				n = len(s.records[group])
			} else if strings.HasSuffix(f.Term["v"]+f.Term["l"], unknown) {
				n = 0
			}
			buckets = append(buckets, map[string]int{"doc_count": n})
		}
		counts[name] = map[string]any{"buckets": buckets}
	}
	return counts
}

// searches returns the requests until now.
func (s *searched) searches() (requests []string) {
	s.set(func() { requests = slices.Clone(s.requests) })
	return requests
}

// openSearched opens an index with sources and memories of one project.
func openSearched(t *testing.T, s *searched, sources, memories int) (x *elastic.Index, project uuid.UUID) {
	t.Helper()
	x = openOn(t, elastic.Options{URL: s.URL})
	changes := documents(sources)
	for range memories {
		d := changes[0].Upserts[0]
		d.DataPoint, d.Memory = uuid.New(), uuid.New()
		changes[0].Upserts = append(changes[0].Upserts, d)
	}
	if err := x.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	return x, changes[0].Project
}

func ask(project uuid.UUID, sources, memories int) recallindex.Query {
	return recallindex.Query{
		Project: project, Sources: sources, Memories: memories, Terms: recall.Wholes("helix", unknown),
		Analysis: indextest.Analysis, Audiences: []uuid.UUID{uuid.Nil},
	}
}

// A search takes two requests, however many results are wanted, and the look-up of spellings one or two.
func TestIndexSearch_Requests(t *testing.T) {
	for _, limit := range []int{10, 100, 300} {
		s := newSearched(t)
		x, project := openSearched(t, s, 1000, 400)
		words := recallindex.SpellingQuery{
			Project: project, Audiences: []uuid.UUID{uuid.Nil}, Words: []recallindex.SpellingWord{{Text: unknown, Edits: 1}},
			Size: 8,
		}
		want := func(what string, requests ...string) {
			t.Helper()
			if got := s.searches(); !slices.Equal(got, requests) {
				t.Errorf("limit %d, %s: requests %v, want %v", limit, what, got, requests)
			}
		}
		for _, near := range []bool{false, true} {
			s.set(func() { s.near, s.requests = near, nil })
			found, err := x.Search(t.Context(), ask(project, 3*limit, limit))
			if err != nil {
				t.Fatal(err)
			}
			if len(found.Sources.Hits) != 3*limit || len(found.Memories.Hits) != limit ||
				found.Sources.Statistics.Docs != 1000 || found.Memories.Statistics.Docs != 400 {
				t.Errorf("limit %d: %d sources of %d, %d memories of %d", limit, len(found.Sources.Hits),
					found.Sources.Statistics.Docs, len(found.Memories.Hits), found.Memories.Statistics.Docs)
			}
			want("search", "_search", "_msearch")
			spellings, err := x.Spellings(t.Context(), words)
			if err != nil {
				t.Fatal(err)
			}
			if near {
				want("spellings", "_search", "_msearch", "_search", "_search")
			} else {
				want("no spellings", "_search", "_msearch", "_search")
			}
			if found := slices.Contains(spellings[0], "helix"); found != near {
				t.Errorf("spellings %v, want helix: %t", spellings, near)
			}
		}
	}
}

// A part that fails fails the search, and counts as a failed request.
func TestIndexSearch_PartFails(t *testing.T) {
	item := func(status int) string {
		return fmt.Sprintf(`{"status":%d,"error":{"type":"refused","reason":"the password of ana is marigold"}}`, status)
	}
	for name, test := range map[string]struct {
		answers         func(answers []string) []string
		want            string
		refused, failed int64
	}{
		"first is unavailable": {func(a []string) []string { return []string{item(503), a[1]} }, "503 refused", 0, 1},
		"last is unavailable":  {func(a []string) []string { return []string{a[0], item(503)} }, "503 refused", 0, 1},
		"no room":              {func(a []string) []string { return []string{a[0], item(429)} }, "429 refused", 1, 0},
		"one is missing":       {func(a []string) []string { return a[:1] }, "answers 1 of 2", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSearched(t)
			x, project := openSearched(t, s, 2, 2)
			before := x.Stats()
			s.set(func() { s.answers = func(_ string, answers []string) []string { return test.answers(answers) } })
			found, err := x.Search(t.Context(), ask(project, 1, 1))
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "marigold") {
				t.Errorf("search: %v, want %q", err, test.want)
			}
			if len(found.Sources.Hits)+len(found.Memories.Hits) > 0 {
				t.Error("a search that failed returns hits")
			}
			after := x.Stats()
			if after.Refused-before.Refused != test.refused || after.Failed-before.Failed != test.failed {
				t.Errorf("requests: %+v, then %+v", before, after)
			}
		})
	}
}

// The index is replaced between the two requests of a search: it is made again, by the alias of the next generation.
func TestIndexSearch_ReplacedInBetween(t *testing.T) {
	s := newSearched(t)
	x, project := openSearched(t, s, 2, 2)
	const next = "6d1f2f0a-1f64-4f0e-9a43-5a0b0f1f7e11"
	missing := `{"status":404,"error":{"type":"index_not_found_exception"}}`
	s.set(func() {
		s.requests = nil
		s.answers = func(alias string, answers []string) []string {
			if strings.HasSuffix(alias, next) {
				return answers
			}
			s.generation = next
			return []string{answers[0], missing}
		}
	})
	found, err := x.Search(t.Context(), ask(project, 2, 2))
	if err != nil || len(found.Sources.Hits) != 2 || len(found.Memories.Hits) != 2 {
		t.Errorf("found %d and %d, %v", len(found.Sources.Hits), len(found.Memories.Hits), err)
	}
	if got, want := s.searches(), []string{"_search", "_msearch", "_search", "_msearch"}; !slices.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
	s.set(func() { s.answers = func(string, []string) []string { return []string{missing, missing} } })
	if _, err := x.Search(t.Context(), ask(project, 2, 2)); !errors.Is(err, recallindex.ErrIncomplete) {
		t.Errorf("search of an index that is gone: %v, want %v", err, recallindex.ErrIncomplete)
	}
}
