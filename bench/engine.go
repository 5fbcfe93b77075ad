package bench

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/bench/load"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/bleve"
)

// EngineOptions are flags: the sizes of Engine.
type EngineOptions struct {
	Passages  int `name:"passages" default:"100000" help:"Texts to search, in thousands: 1,000 to 10,000,000."`
	Questions int `name:"questions" default:"20" help:"Questions of each kind, 1 to 1,000."`
}

// Validate is called by the parser.
func (o EngineOptions) Validate() error {
	if o.Passages < 1000 || o.Passages > 10_000_000 || o.Passages%1000 != 0 || o.Questions < 1 || o.Questions > 1000 {
		return errors.New("want --passages in thousands, up to 10,000,000, and --questions of 1 to 1,000")
	}
	return nil
}

// kindsOfWords are the ranks of words by how common they are, of the first in the kind and the first after it. Mixed
// are words of all ranks.
var kindsOfWords = []struct {
	name     string
	from, to int
}{{"rare", 5000, 20_000}, {"middling", 500, 2000}, {"common", 20, 100}, {"mixed", 20, 20_000}}

// Engine fills the engine of the service, and SQLite with FTS5, with the same texts, asks both the same questions one
// after the other, and writes a table. The engine is also asked as a viewer who reads a tenth of the texts. A cell is
// what a question takes of the processor and on the clock, each the median, in milliseconds.
func Engine(ctx context.Context, opts EngineOptions, progress, out io.Writer) (err error) {
	folder, err := os.MkdirTemp("", "annals-bench-engine-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	engines := &searchEngines{analyzer: recall.NewAnalyzer(), project: uuid.UUID{1}}
	for i := range byte(10) {
		engines.audiences = append(engines.audiences, uuid.UUID{2, i})
	}
	defer func() { err = errors.Join(err, engines.close()) }()
	if err := engines.open(ctx, folder); err != nil {
		return err
	}
	for _, e := range []struct {
		name string
		fill func(context.Context, int) error
	}{{"the engine", engines.fillIndex}, {"SQLite", engines.fillSQLite}} {
		began := time.Now()
		if err := e.fill(ctx, opts.Passages); err != nil {
			return fmt.Errorf("fill %s: %w", e.name, err)
		}
		_, _ = fmt.Fprintf(progress, "%d texts into %s in %.1f s\n", opts.Passages, e.name, time.Since(began).Seconds())
	}
	return engines.table(ctx, opts, out)
}

// searchEngines are both engines with their texts.
type searchEngines struct {
	analyzer *recall.Analyzer
	project  uuid.UUID
	// audiences have one text in ten each.
	audiences []uuid.UUID
	index     *bleve.Index
	sqlite    *sql.DB
}

func (s *searchEngines) open(ctx context.Context, folder string) (err error) {
	if s.index, err = bleve.Open(filepath.Join(folder, "index"), bleve.Options{}); err != nil {
		return err
	}
	if s.sqlite, err = sql.Open("sqlite", filepath.Join(folder, "texts.db")); err != nil {
		return fmt.Errorf("open SQLite: %w", err)
	}
	s.sqlite.SetMaxOpenConns(1)
	for _, statement := range []string{
		"pragma journal_mode = off", "pragma synchronous = off", "pragma cache_size = -1000000",
		"create virtual table texts using fts5 (content)",
	} {
		if _, err := s.sqlite.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prepare SQLite: %w", err)
		}
	}
	return nil
}

func (s *searchEngines) close() (err error) {
	if s.index != nil {
		err = s.index.Close()
	}
	if s.sqlite != nil {
		err = errors.Join(err, s.sqlite.Close())
	}
	return err
}

// fillSeed begins the texts of both engines.
const fillSeed = 10_000

func (s *searchEngines) fillIndex(ctx context.Context, count int) error {
	texts, start := load.NewTexts(fillSeed), time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for from := 0; from < count; from += 1000 {
		change := recallindex.Change{Analysis: s.analyzer.Version(), Project: s.project}
		for i := from; i < from+1000; i++ {
			key := recallindex.Key{Revision: 1}
			binary.BigEndian.PutUint64(key.DataPoint[:], uint64(i)+1)
			for n, terms := range s.analyzer.Passages(recall.Document{Content: texts.Text(passageWords)}) {
				key.N = n
				change.Upserts = append(change.Upserts, recallindex.Document{
					Key: key, Audience: s.audiences[i%len(s.audiences)],
					OccurredAt: start.Add(time.Duration(i) * time.Minute), Terms: terms,
				})
			}
		}
		if err := s.index.Apply(ctx, []recallindex.Change{change}); err != nil {
			return err
		}
	}
	return nil
}

func (s *searchEngines) fillSQLite(ctx context.Context, count int) (err error) {
	tx, err := s.sqlite.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	add, err := tx.PrepareContext(ctx, "insert into texts (content) values (?)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, add.Close()) }()
	texts := load.NewTexts(fillSeed)
	for range count {
		if _, err := add.ExecContext(ctx, texts.Text(passageWords)); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "insert into texts (texts) values ('optimize')"); err != nil {
		return err
	}
	return tx.Commit()
}

// search asks an engine for the best texts by some words, and returns how many it finds.
type search func(ctx context.Context, words []string, top int) (int, error)

// searchIndex asks the engine of the service as a viewer who is in some audiences.
func (s *searchEngines) searchIndex(audiences []uuid.UUID) search {
	return func(ctx context.Context, words []string, top int) (int, error) {
		found, err := s.index.Search(ctx, recallindex.Query{
			Analysis: s.analyzer.Version(), Project: s.project, Sources: top,
			Terms: s.analyzer.Query(strings.Join(words, " ")), Audiences: audiences,
		})
		return len(found.Sources.Hits), err
	}
}

// searchSQLite returns how many texts SQLite finds by any of the words, best first.
func (s *searchEngines) searchSQLite(ctx context.Context, words []string, top int) (n int, err error) {
	rows, err := s.sqlite.QueryContext(ctx, "select rowid from texts where texts match ? order by rank limit ?",
		`"`+strings.Join(words, `" OR "`)+`"`, top)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

// table asks the questions, and writes the table.
func (s *searchEngines) table(ctx context.Context, opts EngineOptions, out io.Writer) error {
	type column struct {
		name   string
		search search
		top    int
	}
	all := s.searchIndex(s.audiences)
	columns := []column{
		{"engine", all, 10},
		{"engine", all, 100},
		{"engine", all, 300},
		{"engine, a tenth", s.searchIndex(s.audiences[:1]), 100},
		{"FTS5", s.searchSQLite, 10},
		{"FTS5", s.searchSQLite, 100},
		{"FTS5", s.searchSQLite, 300},
	}
	header := fmt.Sprintf("| %d texts | words |", opts.Passages)
	for _, c := range columns {
		header += fmt.Sprintf(" %s, top %d |", c.name, c.top)
	}
	lines := []string{header, "|" + strings.Repeat("---|", 2+len(columns))}
	for _, kind := range kindsOfWords {
		for _, count := range []int{1, 2, 6, 10} {
			line := fmt.Sprintf("| %s | %d |", kind.name, count)
			for _, c := range columns {
				questions := load.NewTexts(7)
				cell, err := timed(opts.Questions, func() error {
					n, err := c.search(ctx, questions.Words(count, kind.from, kind.to), c.top)
					if err == nil && n == 0 && kind.name != "rare" {
						err = errors.New("nothing was found, so nothing was measured")
					}
					return err
				})
				if err != nil {
					return fmt.Errorf("search %d %s words: %w", count, kind.name, err)
				}
				line += " " + cell + " |"
			}
			lines = append(lines, line)
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// timed returns what fn takes of the processor and on the clock.
func timed(times int, fn func() error) (string, error) {
	var processor, clock []float64
	for range times {
		before, err := usedHere()
		if err != nil {
			return "", err
		}
		began := time.Now()
		if err := fn(); err != nil {
			return "", err
		}
		clock = append(clock, time.Since(began).Seconds())
		after, err := usedHere()
		if err != nil {
			return "", err
		}
		processor = append(processor, (after - before).Seconds())
	}
	return fmt.Sprintf("%.2f, %.2f", 1000*median(processor), 1000*median(clock)), nil
}
