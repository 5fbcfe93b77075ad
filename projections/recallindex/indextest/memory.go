// Package indextest tests indexes: its tests are a suite over the whole port, which every index has to pass. It also
// has an index in memory, for tests without a disk or a server.
package indextest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/projections/recallindex"
)

// Analysis is the version of the documents and queries of tests, that of recall.NewAnalyzer.
var Analysis = recall.NewAnalyzer().Version()

// Memory is an index in memory that keeps every promise of the port except durability. Documents
// returns its contents.
type Memory struct {
	mu         sync.Mutex
	projects   map[uuid.UUID]map[recallindex.Key]recallindex.Document
	generation uuid.UUID
	closed     bool
	// lost are the projects that lost their documents.
	lost map[uuid.UUID]recallindex.Loss
}

var _ recallindex.Index = (*Memory)(nil)

// NewMemory makes an empty index.
func NewMemory() *Memory {
	return &Memory{
		projects: map[uuid.UUID]map[recallindex.Key]recallindex.Document{}, generation: uuid.New(),
		lost: map[uuid.UUID]recallindex.Loss{},
	}
}

// Documents returns the contents, by project and key, without empty projects.
func (m *Memory) Documents() map[uuid.UUID]map[recallindex.Key]recallindex.Document {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[uuid.UUID]map[recallindex.Key]recallindex.Document{}
	for project, documents := range m.projects {
		if len(documents) > 0 {
			all[project] = maps.Clone(documents)
		}
	}
	return all
}

// Reopen reverts Close, as a new process would.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = false
	return m
}

func (m *Memory) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.closed {
		return recallindex.ErrClosed
	}
	return nil
}

// Apply implements recallindex.Index.
func (m *Memory) Apply(ctx context.Context, changes []recallindex.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(ctx); err != nil {
		return err
	}
	for _, change := range changes {
		if len(change.Upserts) > 0 && change.Analysis != Analysis {
			return recallindex.ErrOtherAnalysis
		}
	}
	for _, change := range changes {
		m.change(change)
	}
	return nil
}

func (m *Memory) change(change recallindex.Change) {
	held := m.projects[change.Project]
	if held == nil {
		held = map[recallindex.Key]recallindex.Document{}
		m.projects[change.Project] = held
	}
	for _, s := range change.Deletes {
		for k := range held {
			if k.DataPoint == s.DataPoint && k.Part() == s.Part && k.Revision == s.Revision {
				delete(held, k)
			}
		}
	}
	for _, d := range change.Upserts {
		held[d.Key] = d
	}
	for _, move := range change.Moves {
		for k, d := range held {
			if k.DataPoint == move.DataPoint {
				d.Audience = move.Audience
				held[k] = d
			}
		}
	}
}

// Search implements recallindex.Index.
func (m *Memory) Search(ctx context.Context, q recallindex.Query) (found recallindex.Found, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(ctx); err != nil {
		return found, err
	}
	if q.Analysis != Analysis {
		return found, recallindex.ErrOtherAnalysis
	}
	if _, lost := m.lost[q.Project]; lost {
		return found, recallindex.ErrIncomplete
	}
	for _, part := range q.Parts() {
		*found.Of(part.Part) = m.search(part)
	}
	return found, nil
}

func (m *Memory) search(q recallindex.PartQuery) recallindex.Result {
	found := recallindex.Result{Statistics: recall.Statistics{Frequencies: make([]recall.Count, len(q.Terms))}}
	orders := map[recallindex.Key]uint64{}
	for _, d := range m.projects[q.Project] {
		if d.Part() != q.Part {
			continue
		}
		hit, matches := recallindex.Hit{
			Key: d.Key, Counts: recall.Counts(q.Terms, d.Terms), Traits: d.Terms.Traits,
		}, false
		for i, c := range hit.Counts {
			if c.Text > 0 {
				found.Statistics.Frequencies[i].Text++
				hit.Length, matches = len(d.Terms.Text), true
			}
			if c.Label > 0 {
				found.Statistics.Frequencies[i].Label++
				matches = true
			}
		}
		found.Statistics.Docs++
		if matches && slices.Contains(q.Audiences, d.Audience) && within(d.OccurredAt, q.From, q.To) {
			found.Hits, orders[d.Key] = append(found.Hits, hit), d.Order()
		}
	}
	weights := found.Statistics.Weights(q.Terms).Shared(q.Terms)
	slices.SortFunc(found.Hits, func(a, b recallindex.Hit) int {
		return cmp.Or(cmp.Compare(weights.Score(b.Counts, b.Length), weights.Score(a.Counts, a.Length)),
			cmp.Compare(orders[a.Key], orders[b.Key]))
	})
	found.Hits = found.Hits[:min(len(found.Hits), q.Size)]
	if len(q.Terms) == 0 {
		found.Statistics.Docs = 0
	}
	return found
}

// Spellings implements recallindex.Index.
func (m *Memory) Spellings(ctx context.Context, q recallindex.SpellingQuery) ([][]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	readable, frequencies := map[string]bool{}, map[string]int{}
	for _, d := range m.projects[q.Project] {
		if d.Part() != recallindex.Sources {
			continue
		}
		reads := slices.Contains(q.Audiences, d.Audience) && within(d.OccurredAt, q.From, q.To)
		for _, part := range [][]string{d.Terms.Text, d.Terms.Label} {
			words := slices.Clone(part)
			slices.Sort(words)
			for _, w := range slices.Compact(words) {
				frequencies[w]++
				readable[w] = readable[w] || reads
			}
		}
	}
	found := make([][]string, len(q.Words))
	for i, word := range q.Words[:min(len(q.Words), recallindex.MaxSpellingWords)] {
		if readable[word.Text] {
			continue
		}
		var list []recallindex.Spelling
		for w, n := range frequencies {
			if s, ok := recallindex.NewSpelling(w, word); ok && readable[w] {
				s.Frequency = n
				list = append(list, s)
			}
		}
		recallindex.SortSpellings(list)
		for _, s := range list[:min(len(list), q.Size)] {
			found[i] = append(found[i], s.Text)
		}
	}
	return found, nil
}

func within(at time.Time, from, to *time.Time) bool {
	return (from == nil || !at.Before(*from)) && (to == nil || !at.After(*to))
}

// Count implements recallindex.Index.
func (m *Memory) Count(ctx context.Context, project uuid.UUID) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.projects[project]), m.enter(ctx)
}

// Total implements recallindex.Index.
func (m *Memory) Total(ctx context.Context) (total int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, documents := range m.projects {
		total += len(documents)
	}
	return total, m.enter(ctx)
}

// Purge implements recallindex.Index: nothing that was deleted is kept.
func (m *Memory) Purge(ctx context.Context) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 0, m.enter(ctx)
}

// Damage loses the documents of a project.
func (m *Memory) Damage(project uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.projects[project])
	m.lost[project] = recallindex.Loss{
		ID: uuid.New(), Part: project.String(), Holds: func(other uuid.UUID) bool { return other == project },
	}
}

// Losses implements recallindex.Index.
func (m *Memory) Losses() []recallindex.Loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.lost))
}

// Refilled implements recallindex.Index.
func (m *Memory) Refilled(ctx context.Context, loss recallindex.Loss, reached *recallindex.Cursor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for project, l := range m.lost {
		if l.ID != loss.ID {
			continue
		}
		if reached == nil {
			delete(m.lost, project)
			return m.enter(ctx)
		}
		l.Reached = *reached
		m.lost[project] = l
		return m.enter(ctx)
	}
	return recallindex.ErrDamaged
}

// DropProject implements recallindex.Index.
func (m *Memory) DropProject(ctx context.Context, project uuid.UUID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.projects, project)
	return m.enter(ctx)
}

// Reset implements recallindex.Index.
func (m *Memory) Reset(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.projects)
	clear(m.lost)
	m.generation = uuid.New()
	return m.enter(ctx)
}

// Analysis implements recallindex.Index: it is that of recall.NewAnalyzer.
func (m *Memory) Analysis() int { return Analysis }

// Generation implements recallindex.Index.
func (m *Memory) Generation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "memory:" + m.generation.String()
}

// Close implements recallindex.Index.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
