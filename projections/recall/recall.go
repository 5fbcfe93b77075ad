// Package recall answers what a project remembers about a text: candidates from the search index, judged in one snapshot of
// Postgres, ranked, and shown whole under a budget.
package recall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recallindex"
)

// Query is a checked request. Times are instants; everything else is as the request says.
type Query struct {
	Project auth.Project
	// Organization is whose share of the recalls at work this one takes.
	Organization uuid.UUID
	// Audiences are those that the identity reaches, with uuid.Nil for what is project-visible. A service with Viewers finds
	// them itself.
	Audiences []uuid.UUID
	Text      string
	Identity  string
	// Limit is the most documents, Budget the most tokens.
	Limit, Budget int
	// At is the perspective; nil is now. From and To bound when a source occurred, inclusive; nil is open.
	At       *time.Time
	From, To *time.Time
	// Chronological sorts the page oldest first; ranks stay those of relevance.
	Chronological bool
}

// Page is the answer.
type Page struct {
	AsOf               time.Time `json:"asOf"`
	UsedEvidenceTokens int       `json:"usedEvidenceTokens"`
	Results            []Result  `json:"results"`
}

// Result is one document: a source, whose text is Content, or a memory, whose line is Content and whose proof is in Sources.
type Result struct {
	ID         uuid.UUID `json:"id"`
	Rank       int       `json:"rank"`
	OccurredAt time.Time `json:"occurredAt"`
	Content    string    `json:"content"`
	Artifact   Artifact  `json:"artifact"`
	Sources    []Source  `json:"sources"`
}

// Artifact says what a result is. SupersededAt is when a later statement that the reader may read replaced it.
type Artifact struct {
	ID           uuid.UUID  `json:"id"`
	Kind         string     `json:"kind"`
	OccurredAt   time.Time  `json:"occurredAt"`
	SupersededAt *time.Time `json:"supersededAt,omitempty"`
}

// KindSource is the kind of a result that is what was sent.
const KindSource = "source"

// Source is evidence: what was sent under an id. Label and Metadata are as sent, nil where nothing was.
type Source struct {
	SourceID   string          `json:"sourceId"`
	OccurredAt time.Time       `json:"occurredAt"`
	Label      *string         `json:"label,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Excerpts   []string        `json:"excerpts"`
}

// Meaning finds the data points that are nearest to a text in meaning, each with how much nearer than the others it is. It believes
// the table's state of audiences and times, which the gate judges again.
type Meaning interface {
	Near(ctx context.Context, q embeddings.Query, text string) []embeddings.Hit
}

// Viewers say what identities reach.
type Viewers interface {
	// View is what an identity reaches now.
	View(ctx context.Context, project auth.Project, identity string) (directory.View, error)
	// ViewIn is what it reaches in the snapshot of a transaction.
	ViewIn(ctx context.Context, tx directory.Snapshot, project auth.Project, identity string) (directory.View, error)
}

// Config is what a Service works with.
type Config struct {
	DB    *pgxpool.Pool
	Index recallindex.Index
	// Analyzer is nil for one of the service's own.
	Analyzer *recall.Analyzer
	Blobs    interface {
		// ReadBlob reads a blob whole.
		ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
	}
	// Viewers say what the identity of a query reaches; nil where the query says it.
	Viewers Viewers
	// Meaning finds data points by what the query means, and gives up in time; nil goes by words alone.
	Meaning Meaning
	// Projections says whether a projection stopped: then nobody knows what was deleted since. Nil trusts them all.
	Projections interface {
		Stopped(ctx context.Context, projection string) error
	}
	// Now is nil for the clock.
	Now func() time.Time
	Log *slog.Logger
}

// Service recalls. It is safe for concurrent use.
type Service struct {
	config Config
	// atWork counts recalls, in place of bytes.
	atWork *allowance.Allowance
}

// New makes a service.
func New(config Config) *Service {
	if config.Analyzer == nil {
		config.Analyzer = recall.NewAnalyzer()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{config: config, atWork: newAtWork(config.DB)}
}

const (
	// waitForTurn is how long a recall waits until others of its organization have ended, and mostWaiting how many wait at once; a
	// quarter of them for one organization.
	waitForTurn = 5 * time.Second
	mostWaiting = 256
)

// newAtWork bounds the recalls at work: all of them leave a quarter of the database's connections to everything else, and those of
// one organization leave half of the rest to others.
func newAtWork(db *pgxpool.Pool) *allowance.Allowance {
	all := int64(16)
	if db != nil {
		all = max(int64(db.Config().MaxConns)*3/4, 2)
	}
	return allowance.New(allowance.Config{
		Total: all, Share: all / 2, Wait: waitForTurn, Waiters: mostWaiting, Refusal: "too many recalls of the organization are at work; send the request again",
	})
}

// Candidates that the index is asked for at first; and how often it is asked for more where too few of them can be shown.
const (
	firstSources  = 300
	firstMemories = 150
	growth        = 4
	rounds        = 4
)

// incomplete is what a caller is told whose index lost something: an answer that misses a part is none.
const incomplete = "the index of this project is being filled again after damage; retry in a moment"

// rest are the projections that the gate rests on.
var rest = []string{"datapoints", "memories"}

// Recall answers a query. Results is never nil. A failure of database or index is a fault service-unavailable, and so is too much
// at once; a panic is a fault internal.
//
// The bytes of the page are reserved from the allowance that the context carries, if it carries one.
func (s *Service) Recall(ctx context.Context, q Query) (page Page, err error) {
	turn := s.atWork.Open(q.Organization)
	defer turn.Release()
	if err := turn.Reserve(ctx, 1); err != nil {
		return Page{}, err
	}
	err = panics.Call(ctx, s.config.Log, "recall panicked", func() (err error) { page, err = s.recall(ctx, q); return err })
	if err == nil {
		return page, nil
	}
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return Page{}, fault.New(fault.Internal, fault.CodeInternal, "the recall failed; quote its X-Request-Id to support")
	}
	if ctx.Err() != nil {
		return Page{}, err
	}
	if _, told := errors.AsType[*fault.Error](err); told {
		return Page{}, err
	}
	if errors.Is(err, recallindex.ErrIncomplete) {
		return Page{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", incomplete)
	}
	s.config.Log.ErrorContext(ctx, "recall failed", "err", err)
	return Page{}, fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "memory cannot be searched at the moment")
}

func (s *Service) recall(ctx context.Context, q Query) (Page, error) {
	if s.config.Projections != nil {
		for _, name := range rest {
			if err := s.config.Projections.Stopped(ctx, name); err != nil {
				return Page{}, fmt.Errorf("projection %s: %w", name, err)
			}
		}
	}
	now := instant(s.config.Now())
	if s.config.Viewers == nil {
		return s.ask(ctx, q, nil, now)
	}
	for range looks {
		view, err := s.config.Viewers.View(ctx, q.Project, q.Identity)
		if err != nil {
			return Page{}, err
		}
		q.Audiences = view.Audiences
		if page, err := s.ask(ctx, q, &view, now); !errors.Is(err, errMoved) {
			return page, err
		}
	}
	return s.askInside(ctx, q, now)
}

// looks is how often what the identity reaches is read apart from the snapshot, which spares a transaction that waits for the index.
const looks = 3

// errMoved says that in the snapshot of the gate the identity reaches something else than was read before.
var errMoved = errors.New("what the identity reaches has changed meanwhile")

// ask answers in a snapshot that begins once the index has answered. In it the identity must reach what the view says: what came
// into an audience after the identity had left it was never for this reader.
func (s *Service) ask(ctx context.Context, q Query, view *directory.View, now time.Time) (page Page, err error) {
	ask := s.newQuestion(q, now)
	// The index is asked before the snapshot is taken: what it found and has gone since is judged by what stands.
	found, err := s.search(ctx, &ask)
	if err != nil {
		return Page{}, err
	}
	err = s.config.DB.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		g := newGate(conn, q, now)
		g.view = view
		page, err = s.answer(ctx, g, &ask, found, true)
		return end(ctx, conn, err)
	})
	return page, err
}

// askInside answers in a snapshot that begins with what the identity reaches, and waits for the index.
func (s *Service) askInside(ctx context.Context, q Query, now time.Time) (page Page, err error) {
	err = s.config.DB.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		page, err = s.inside(ctx, conn, q, now)
		return end(ctx, conn, err)
	})
	return page, err
}

func (s *Service) inside(ctx context.Context, conn *pgxpool.Conn, q Query, now time.Time) (Page, error) {
	if _, err := conn.Exec(ctx, begin); err != nil {
		return Page{}, fmt.Errorf("begin the snapshot: %w", err)
	}
	view, err := s.config.Viewers.ViewIn(ctx, conn, q.Project, q.Identity)
	if err != nil {
		return Page{}, err
	}
	q.Audiences = view.Audiences
	ask := s.newQuestion(q, now)
	found, err := s.search(ctx, &ask)
	if err != nil {
		return Page{}, err
	}
	return s.answer(ctx, newGate(conn, q, now), &ask, found, false)
}

// end ends the snapshot of a connection. Nothing was written. A connection on which this fails is given up by the pool.
func end(ctx context.Context, conn *pgxpool.Conn, err error) error {
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return err
	}
	if _, e := conn.Exec(ctx, "rollback"); e != nil && err == nil {
		err = fmt.Errorf("end the snapshot: %w", e)
	}
	return err
}

// likely is how many data points are judged and ranked at first, for a page of so many: some do not pass, some do not fit, and what
// the index takes for the best need not be.
func likely(limit int) int { return max(128, limit+limit/4) }

// answer judges as many of the data points that were found as the page depends on, the most promising first, and asks the index
// for more where too few of them can be shown. With opening the first judgement begins the snapshot.
func (s *Service) answer(ctx context.Context, g *gate, ask *question, found *found, opening bool) (Page, error) {
	for n, round := likely(ask.Limit), 1; ; opening = false {
		n = min(n, len(found.order))
		if err := g.judge(ctx, found, n, opening); err != nil {
			return Page{}, err
		}
		if n == len(found.order) && round < rounds && found.more(ask) && !g.suffices(ask) {
			round++
			ask.sources, ask.memories = ask.sources*growth, ask.memories*growth
			var err error
			if found, err = s.search(ctx, ask); err != nil {
				return Page{}, err
			}
			n = len(found.order)
			continue
		}
		texts, composed, err := s.compose(ctx, g, ask, found)
		if err != nil {
			return Page{}, err
		}
		// A page that still has room takes from all the others too.
		if full := len(composed.Page) == ask.Limit || composed.Ended; full || n == len(found.order) {
			return s.page(ctx, texts, ask, composed)
		}
		n = len(found.order)
	}
}

// instant is a time as answers say it.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// compose ranks what passed the gate and chooses the documents of the page.
func (s *Service) compose(ctx context.Context, g *gate, ask *question, found *found) (*texts, recall.Composed, error) {
	ranking, err := s.rank(ctx, g, ask, found)
	if err != nil {
		return nil, recall.Composed{}, err
	}
	texts := &texts{gate: g, blobs: s.config.Blobs, ranking: ranking, log: s.config.Log, contents: map[revisionKey][]byte{}}
	budget := recall.Budget{Tokens: ask.Budget, Bytes: PageBytes}
	composed := recall.Compose(ranking.candidates, ask.Limit, budget, func(e recall.Entry) (recall.Cost, bool) { return texts.cost(ctx, e) })
	return texts, composed, texts.err
}

// page reads the documents of the page. One that is being erased is left out.
func (s *Service) page(ctx context.Context, texts *texts, ask *question, composed recall.Composed) (Page, error) {
	page := Page{AsOf: texts.gate.at, Results: make([]Result, 0, len(composed.Page))}
	if err := texts.load(ctx, composed); err != nil {
		return Page{}, err
	}
	for _, e := range composed.Page {
		result, ok := texts.result(e, len(page.Results)+1)
		if !ok {
			continue
		}
		cost, _ := texts.cost(ctx, e)
		page.UsedEvidenceTokens += cost.Tokens
		page.Results = append(page.Results, result)
	}
	if ask.Chronological {
		slices.SortStableFunc(page.Results, func(a, b Result) int { return a.OccurredAt.Compare(b.OccurredAt) })
	}
	return page, nil
}
