package elastic_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// The corpus: passages of about 210 characters over three years, in thirty audiences.
const (
	benchPassages  = 20_000
	benchAudiences = 30
	benchDays      = 1095
)

var benchStart = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// BenchmarkEngines compares both engines on the same passages and queries: pages of 1,000 and of one
// passage, and searches without and with filters (three audiences of thirty; 500 days of 1,095).
func BenchmarkEngines(b *testing.B) {
	passages, queries := benchCorpus()
	engines := []struct {
		name string
		open func(b *testing.B) recallindex.Index
	}{
		{"bleve", func(b *testing.B) recallindex.Index {
			x, err := bleve.Open(b.TempDir(), bleve.Options{})
			if err != nil {
				b.Fatal(err)
			}
			return x
		}},
		{"elasticsearch", func(b *testing.B) recallindex.Index {
			x, err := elastic.Open(b.Context(), elastictest.Options(b))
			if err != nil {
				b.Fatal(err)
			}
			return x
		}},
	}
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) { benchEngine(b, engine.open(b), passages, queries) })
	}
}

func benchEngine(b *testing.B, x recallindex.Index, passages []recallindex.Document, queries [][]recall.Term) {
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Error(err)
		}
	})
	project, page := uuid.New(), eventstore.Position(0)
	write := func(b *testing.B, documents []recallindex.Document) {
		page++
		change := recallindex.Change{Analysis: indextest.Analysis, Project: project, Position: page, Upserts: documents}
		if err := x.Apply(b.Context(), []recallindex.Change{change}); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	for from := 0; from < len(passages); from += 1000 {
		write(b, passages[from:from+1000])
	}
	b.Logf("%.0f passages a second are written in pages of 1,000", benchPassages/time.Since(began).Seconds())
	b.Run("page of one passage", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			write(b, passages[n%len(passages):][:1])
		}
	})
	var all []uuid.UUID
	for n := range benchAudiences {
		all = append(all, uuid.UUID{15: byte(n + 1)})
	}
	from, to := benchStart.AddDate(0, 0, 300), benchStart.AddDate(0, 0, 800)
	q := recallindex.Query{
		Analysis: indextest.Analysis, Project: project, Sources: 300, Audiences: all,
	}
	search := func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			q.Terms = queries[n%len(queries)]
			if _, err := x.Search(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("search", search)
	q.Audiences, q.From, q.To = all[:3], &from, &to
	b.Run("search with filters", search)
}

func benchCorpus() (passages []recallindex.Document, queries [][]recall.Term) {
	analyzer, texts := recall.NewAnalyzer(), load.NewTexts(10_000)
	for i := range benchPassages {
		d := recallindex.Document{
			Key: recallindex.Key{Revision: 1}, Audience: uuid.UUID{15: byte(i*7%benchAudiences + 1)},
			OccurredAt: benchStart.AddDate(0, 0, i*31%benchDays),
			Terms:      recall.Terms{Text: analyzer.Terms(texts.Text(35))},
		}
		binary.BigEndian.PutUint64(d.DataPoint[:], uint64(i)+1)
		passages = append(passages, d)
	}
	for questions := load.NewTexts(7); len(queries) < 200; {
		queries = append(queries, analyzer.Query(questions.Query()))
	}
	return passages, queries
}
