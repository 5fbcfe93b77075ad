// Package recall returns what a project remembers about a text. It takes candidates from the search
// index, checks in one Postgres snapshot which of them the viewer may read, ranks them, and returns
// whole documents within a budget.
package recall

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recallindex"
)

// Query is a checked request.
type Query struct {
	Project auth.Project
	// Organization is the organization whose share of concurrent recalls the query counts against.
	Organization uuid.UUID
	// Audiences are the audiences that the identity reaches, with uuid.Nil for what is
	// project-visible. A service with Viewers sets them itself.
	Audiences []uuid.UUID
	Text      string
	Identity  string
	// Limit is the most documents, Budget the most tokens.
	Limit, Budget int
	// At is the perspective; nil is now. The days that the text names are those of its location, of UTC
	// if it is nil. From and To bound when a source occurred, inclusive; nil is open.
	At       *time.Time
	From, To *time.Time
	// Chronological sorts the results oldest first; ranks stay those of relevance.
	Chronological bool
	// Values bounds the metadata of the response.
	Values Values
}

// Values bounds the metadata that is read: where a response would have more than Total bytes, metadata of more than
// Each bytes is left out. It then is no part of what a response may have, so that it ends none. The zero value bounds
// nothing.
type Values struct{ Total, Each int64 }

// Response is the answer to a query.
type Response struct {
	AsOf               time.Time
	UsedEvidenceTokens int
	Results            []Result
	// MetadataLeftOut is how many sources of the results have {} in place of their metadata.
	MetadataLeftOut int
}

// Result is one document: a source, whose text is Content, or a memory, whose text is Content and
// whose excerpt is in Sources.
type Result struct {
	ID         uuid.UUID
	Rank       int
	OccurredAt time.Time
	Content    string
	Artifact   Artifact
	Sources    []Source
}

// Artifact describes what a result is. SupersededAt is the time of the later claim that supersedes
// it for the viewer, nil if none does.
type Artifact struct {
	ID           uuid.UUID
	Kind         string
	OccurredAt   time.Time
	SupersededAt *time.Time
}

// KindSource is the kind of a result that is a data point.
const KindSource = "source"

// Source is evidence: a data point by its source id. Label and Metadata are as sent, nil if they
// were omitted.
type Source struct {
	SourceID   string
	OccurredAt time.Time
	Label      *string
	Metadata   json.RawMessage
	Excerpts   []string
}

// Semantic finds the data points whose embeddings are nearest to that of a text. Its view of
// audiences and times may be stale; the gate checks them again.
type Semantic interface {
	Find(ctx context.Context, q embeddings.Query, text string) *embeddings.Found
}

// Viewers read what identities reach.
type Viewers interface {
	// Reach returns what an identity reaches now.
	Reach(ctx context.Context, project auth.Project, identity string) (directory.Reach, error)
	// ReachIn returns what an identity reaches in the snapshot of a transaction.
	ReachIn(ctx context.Context, tx directory.Snapshot, project auth.Project, identity string) (directory.Reach, error)
}

// Config holds the dependencies of a Service.
type Config struct {
	DB *pgxpool.Pool
	// Replica may answer the texts that passed the gate; nil for none.
	Replica *replica.Reader
	Index   recallindex.Index
	// Analyzers are those of the generations that the index may have.
	Analyzers recall.Analyzers
	// Without names signals of the ranker to leave out, such as recall.Floor.
	Without []string
	Blobs   eventstore.BlobReader
	// Viewers find what the identity of a query reaches; nil takes the audiences of the query.
	Viewers Viewers
	// Semantic finds data points by embedding within a bounded time; nil searches by words only.
	Semantic Semantic
	// Projections report whether a projection stopped: recall fails then, since a deletion may not be
	// applied.
	Projections interface {
		Stopped(ctx context.Context, projection string) error
	}
	Now func() time.Time
	Log *slog.Logger
}

// Service answers recalls. It is safe for concurrent use.
type Service struct {
	config Config
	// slots bounds the recalls that run; a recall reserves one unit.
	slots *allowance.Allowance
}

// New makes a service.
func New(config Config) *Service { return &Service{config: config, slots: newSlots(config.DB)} }

// newSlots bounds the recalls that run: together they leave a quarter of the database's connections
// to other work, and those of one organization take at most half of the rest.
func newSlots(db *pgxpool.Pool) *allowance.Allowance {
	return admission.Recalls.Of(max(int64(db.Config().MaxConns)*3/4, 2)).New()
}

// incomplete is the message of a recall whose project lost documents of the index: a partial result
// is not returned.
const incomplete = "the index of this project is being repaired; retry in a moment"

// Recall answers a query. Results is never nil. A failure of the database or the index, or too many
// recalls at once, is a fault service-unavailable; a panic is a fault internal.
//
// The bytes of the response are reserved from the allowance that the context carries, if any.
func (s *Service) Recall(ctx context.Context, q Query) (page Response, err error) {
	of := allowance.Owner{Organization: q.Organization, Project: q.Project.ID}
	read, shown := readlog.From(ctx), []reads.Shown(nil)
	var finished func(context.Context, *Pass) error
	if read != nil {
		finished = func(_ context.Context, p *Pass) error { //nolint:unparam // another one may fail
			shown = p.Shown()
			return nil
		}
	}
	err = s.run(ctx, of, func() (err error) {
		page, err = s.pass(ctx, q, finished)
		return err
	})
	if err != nil {
		return Response{}, err
	}
	read.Asked(reads.Recall, q.Identity, q.Text)
	err = read.Show(ctx, reads.Recall, shown...)
	if err == nil {
		err = read.Store(ctx) // before it is counted: an answer that cannot be given costs nothing
	}
	if err != nil {
		return Response{}, err
	}
	return page, nil
}

// Follow answers a query as Recall does, and calls finished with what led to the answer, within its snapshot. If the
// query must be answered again, finished is called again, and the last call counts. It takes no share of an
// organization. The errors are those of Recall.
func (s *Service) Follow(ctx context.Context, q Query, finished func(context.Context, *Pass) error) error {
	q.Organization = uuid.Nil
	return s.run(ctx, allowance.Owner{}, func() error {
		_, err := s.pass(ctx, q, finished)
		return err
	})
}

// run answers within the slots of a project. Its errors are those of Recall.
func (s *Service) run(ctx context.Context, of allowance.Owner, answer func() error) error {
	slot := s.slots.Open(of)
	defer slot.Release()
	if err := slot.Reserve(ctx, 1); err != nil {
		return err
	}
	err := panics.Call(ctx, s.config.Log, "recall panicked", func() error {
		err := answer()
		if errors.Is(err, recallindex.ErrOtherAnalysis) {
			err = answer() // another generation of the index was put into use meanwhile
		}
		return err
	})
	if err == nil {
		return nil
	}
	if _, panicked := errors.AsType[*panics.Error](err); panicked {
		return fault.New(fault.Internal, fault.CodeInternal, "the recall failed; quote its X-Request-Id to support")
	}
	if ctx.Err() != nil {
		return err
	}
	if _, isFault := errors.AsType[*fault.Error](err); isFault {
		return err
	}
	if errors.Is(err, recallindex.ErrIncomplete) {
		return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "%s", incomplete)
	}
	s.config.Log.ErrorContext(ctx, "recall failed", "err", err)
	return fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "memory cannot be searched now; retry")
}

const (
	defaultLimit = 100
	defaultLevel = "low"
)

// levels are the budgets by name, in tokens.
var levels = map[string]int{"low": 8000, "medium": 16000, "high": 24000, "extra-high": 32000}

// The orders of a page.
const (
	sortRelevance     = "relevance"
	sortChronological = "chronological"
)

// queryNames are the names of a recall.
var queryNames = fields.NewNames(
	"query", "identity", "limit", "level", "maxTokens", "queryTimestamp", "occurredFrom", "occurredTo", "sort")

// ParseQuery reads the body of a recall, one checked JSON value. The query has no project yet. The fault is
// recall-query-required, identity-required, recall-sort-invalid, recall-range-invalid, or invalid-request for whatever
// else is wrong with it.
func ParseQuery(body []byte) (Query, error) {
	return fields.Decode(body, "", queryNames, queryOf)
}

func queryOf(f fields.Object) (Query, error) {
	text, identity := f.Text("query"), f.Text("identity")
	switch {
	case isBlank(f, "query", text):
		return Query{}, fault.New(fault.Invalid, fault.CodeRecallQueryRequired, "query is required, and not blank")
	case isBlank(f, "identity", identity):
		return Query{}, fault.New(fault.Invalid, fault.CodeIdentityRequired, "identity is required, and not blank")
	}
	chronological, err := isChronological(f)
	if err != nil {
		return Query{}, err
	}
	q := Query{Chronological: chronological, Limit: defaultLimit, Budget: budgetOf(f)}
	if results := f.Integer("limit", 1, limit.RecallResults); results != nil {
		q.Limit = *results
	}
	q.From = f.Instant("occurredFrom")
	if asked := f.Written("queryTimestamp"); asked != nil {
		q.At = &asked.At // in its zone, whose days the query names
	}
	if to := f.Written("occurredTo"); to != nil {
		q.To = new(to.Last())
	}
	f.Name("identity", 1, limit.Identity)
	if err := f.Err(); err != nil {
		return Query{}, err
	}
	if q.From != nil && q.To != nil && q.From.After(*q.To) {
		return Query{}, fault.New(fault.Invalid, fault.CodeRecallRangeInvalid, "occurredFrom is after occurredTo")
	}
	q.Text, q.Identity = *text, *identity
	return q, nil
}

// isBlank reports whether a text is omitted or nothing but white space. What is no text at all is
// a problem of its own.
func isBlank(f fields.Object, name string, text *string) bool {
	if text == nil {
		return !f.Has(name)
	}
	return strings.TrimSpace(*text) == ""
}

func isChronological(f fields.Object) (bool, error) {
	if !f.Has("sort") {
		return false, nil
	}
	switch order, _ := rawjson.Text(f.Raw("sort")); order {
	case sortRelevance:
		return false, nil
	case sortChronological:
		return true, nil
	}
	return false, fault.New(fault.Invalid, fault.CodeRecallSortInvalid, "sort is %.100s: want %q or %q",
		f.Raw("sort"), sortRelevance, sortChronological)
}

// budgetOf is the tokens of a page: those of the level, or maxTokens where it is sent.
func budgetOf(f fields.Object) int {
	if f.Has("level") && f.Has("maxTokens") {
		f.Problem("maxTokens", "send level or maxTokens, not both")
		return 0
	}
	if tokens := f.IntegerMax("maxTokens", 1, limit.EvidenceTokens); tokens != nil {
		return *tokens
	}
	level := f.Text("level")
	if level == nil {
		return levels[defaultLevel]
	}
	tokens, ok := levels[*level]
	if !ok {
		f.Problem("level", "is %.100q: want low, medium, high or extra-high", *level)
	}
	return tokens
}

// meter charges recalls.
type meter interface {
	// Charge reserves the price of a recall, searches, and counts the recall. Its faults are those of
	// the search, spend-cap-reached, out-of-credits, and service-unavailable if it cannot be counted.
	Charge(ctx context.Context, p auth.Principal, identity string, at time.Time, search func() error) error
	// Refund subtracts a recall that was counted, and is not shown.
	Refund(ctx context.Context, p auth.Principal, at time.Time)
	// Ceiling returns the most tokens of a recall response under a plan.
	Ceiling(plan metering.Plan) int
}

// recaller searches the memory of a project.
type recaller interface {
	// Recall returns a response whose results are never nil.
	Recall(ctx context.Context, q Query) (Response, error)
}

// Charged answers recalls for the callers of a project, and charges them.
type Charged struct {
	Meter   meter
	Recalls recaller
}

// Recall recalls for a caller at an instant, in the project of the caller. A budget over the ceiling of the plan is
// lowered to it. The faults are those of Service.Recall and, where the plan has a price, spend-cap-reached and
// out-of-credits.
func (c Charged) Recall(ctx context.Context, p auth.Principal, q Query, at time.Time) (found Response, err error) {
	q.Project, q.Organization = p.Project, p.OrganizationID
	q.Budget = min(q.Budget, c.Meter.Ceiling(p.Limits.Plan))
	err = c.Meter.Charge(ctx, p, q.Identity, at, func() (err error) {
		found, err = c.Recalls.Recall(ctx, q)
		return err
	})
	if err == nil {
		readlog.From(ctx).Unless(func() { c.Meter.Refund(ctx, p, at) })
	}
	return found, err
}
