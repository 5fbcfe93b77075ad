package bleve

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	blevesearch "github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/search/query"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// The corpus of the benchmark: passages of about 210 characters over three years, in thirty
// audiences.
const (
	benchPassages  = 100_000
	benchAudiences = 30
	benchDays      = 1095
)

var benchStart = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// BenchmarkSearch compares our search with Bleve's on the same files, without and with three
// filters (the project has its own index; three audiences of thirty; 500 days of 1,095).
func BenchmarkSearch(b *testing.B) {
	x, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	})
	project, analyzer, texts := uuid.UUID{1}, recall.NewAnalyzer(), load.NewTexts(10_000)
	began := time.Now()
	for from := 0; from < benchPassages; from += 1000 {
		change := recallindex.Change{Analysis: indextest.Analysis, Project: project}
		for i := from; i < from+1000; i++ {
			d := recallindex.Document{
				Key: recallindex.Key{Revision: 1}, Audience: uuid.UUID{15: byte(i*7%benchAudiences + 1)},
				OccurredAt: benchStart.AddDate(0, 0, i*31%benchDays),
				Terms:      recall.Terms{Text: analyzer.Terms(texts.Text(35))},
			}
			binary.BigEndian.PutUint64(d.DataPoint[:], uint64(i)+1)
			change.Upserts = append(change.Upserts, d)
		}
		if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%.0f passages a second are written", benchPassages/time.Since(began).Seconds())
	var queries [][]recall.Term
	for questions := load.NewTexts(7); len(queries) < 200; {
		queries = append(queries, analyzer.Query(questions.Query()))
	}
	var all []uuid.UUID
	for n := range benchAudiences {
		all = append(all, uuid.UUID{15: byte(n + 1)})
	}
	from, to := benchStart.AddDate(0, 0, 300), benchStart.AddDate(0, 0, 800)
	for _, filters := range []bool{false, true} {
		name := "plain"
		q := recallindex.Query{
			Analysis: indextest.Analysis, Project: project, Sources: 300, Audiences: all,
		}
		if filters {
			name, q.Audiences, q.From, q.To = "filters", all[:3], &from, &to
		}
		b.Run(name+"/ours", func(b *testing.B) {
			defer reportCPU(b)()
			for n := 0; b.Loop(); n++ {
				q.Terms = queries[n%len(queries)]
				if _, err := x.Search(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/bleve", func(b *testing.B) {
			defer reportCPU(b)()
			err := x.with(own(project).slot, false, func(h *handle) error {
				for n := 0; b.Loop(); n++ {
					if _, err := h.index.SearchInContext(b.Context(), bare(queries[n%len(queries)], q, filters)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// reportCPU reports the processor time of an operation, which other work on the machine does not
// increase.
func reportCPU(b *testing.B) func() {
	before := processorTime(b)
	return func() { b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op") }
}

// processorTime is what this process used until now.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bare is the same query for Bleve's search.
func bare(terms []recall.Term, q recallindex.Query, filters bool) *blevesearch.SearchRequest {
	inField := func(text, field string) query.Query {
		t := query.NewTermQuery(text)
		t.SetField(field)
		return t
	}
	var should []query.Query
	for _, t := range terms {
		should = append(should, inField(t.Text, textField), inField(t.Text, labelField))
	}
	boolean := query.NewBooleanQuery(nil, should, nil)
	if filters {
		var audiences []query.Query
		for _, a := range q.Audiences {
			audiences = append(audiences, inField(a.String(), audienceField))
		}
		inclusive := true
		days := query.NewTermRangeInclusiveQuery(day(*q.From), day(*q.To), &inclusive, &inclusive)
		days.SetField(dayField)
		boolean.AddFilter(query.NewConjunctionQuery([]query.Query{query.NewDisjunctionQuery(audiences), days}))
	}
	return blevesearch.NewSearchRequestOptions(boolean, q.Sources, 0, false)
}
