// Package readlog collects what a request is shown of the texts of a project whose reads are recorded. The edge and the
// pages put a Read into the context of the request, the queries that return texts add what they show, and the end of
// the request keeps it. A request of another project has no Read, and all of this does nothing.
package readlog

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// The room of a record, and of a text in it. It is reserved before the text is shown.
const (
	RecordBytes = 1 << 10
	ShownBytes  = 256
	// MaxShown is the most texts of one record. More of them make another part.
	MaxShown = 500
)

// Keeper takes records.
type Keeper interface {
	// Room returns the allowance of records that are not in the log yet.
	Room() *allowance.Allowance
	// Question returns the keyed hash of a question.
	Question(project uuid.UUID, text string) string
	// Keep takes a record with its reservation. It never waits.
	Keep(o allowance.Owner, r reads.Record, hold *allowance.Hold)
}

// Read is what one request is shown. Its methods may be called at the same time. A nil Read records nothing.
type Read struct {
	keeper    Keeper
	owner     allowance.Owner
	namespace uuid.UUID

	mu     sync.Mutex
	hold   *allowance.Hold
	record reads.Record
	seen   map[uuid.UUID]bool
	asked  bool
}

// Open makes the read of a request, with room for its record. The error is service-unavailable if there is none in
// time.
func Open(ctx context.Context, keeper Keeper, p auth.Principal, request uuid.UUID, at time.Time) (*Read, error) {
	r := &Read{
		keeper: keeper, owner: allowance.Owner{Organization: p.OrganizationID, Project: p.Project.ID},
		namespace: p.Project.Namespace, seen: map[uuid.UUID]bool{},
		record: reads.Record{ID: request, At: at.UTC().Truncate(time.Microsecond), By: p.Name()},
	}
	r.hold = keeper.Room().Open(r.owner)
	if err := r.hold.Reserve(ctx, RecordBytes); err != nil {
		return nil, err
	}
	return r, nil
}

type contextKey struct{}

// NewContext returns a context that carries a read.
func NewContext(ctx context.Context, r *Read) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the read of a context, nil if nothing is to be recorded.
func From(ctx context.Context) *Read {
	r, _ := ctx.Value(contextKey{}).(*Read)
	return r
}

// Within sets the id of the request that the read is of: that of the logged call, where a page makes one.
func (r *Read) Within(request uuid.UUID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.ID = request
}

// Asked notes the identity that a question is asked as, and the question, "" for none. A question is recorded although
// nothing answers it.
func (r *Read) Asked(way reads.Way, identity, question string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = true
	r.record.Way, r.record.As = way, stream.IdentityID(r.namespace, identity)
	if question != "" {
		r.record.Question = r.keeper.Question(r.owner.Project, question)
	}
}

// OfCall notes the logged call whose bodies are shown.
func (r *Read) OfCall(id uuid.UUID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = true
	r.record.Way, r.record.Call = reads.Body, id
}

// Point is a data point of which a text is shown, by its source id.
func (r *Read) Point(sourceID string) uuid.UUID { return stream.DataPointID(r.namespace, sourceID) }

// Show adds texts that are about to be shown. The error is service-unavailable if there is no room for them in time:
// then they must not be shown.
func (r *Read) Show(ctx context.Context, way reads.Way, texts ...reads.Shown) error {
	if r == nil || len(texts) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record.Way == "" {
		r.record.Way = way
	}
	for len(texts) > 0 {
		n := min(len(texts), MaxShown-len(r.record.Shown))
		if err := r.hold.Reserve(ctx, int64(n)*ShownBytes); err != nil {
			return err
		}
		for _, s := range texts[:n] {
			id := s.Node
			if id == uuid.Nil {
				id = s.DataPoint
			}
			if !r.seen[id] {
				r.seen[id] = true
				r.record.Shown = append(r.record.Shown, s)
			}
		}
		if texts = texts[n:]; len(r.record.Shown) < MaxShown {
			continue
		}
		r.keep()
		r.hold = r.keeper.Room().Open(r.owner)
		if err := r.hold.Reserve(ctx, RecordBytes); err != nil {
			return err
		}
	}
	return nil
}

// Cut changes the texts of the last part to those that are left in the answer.
func (r *Read) Cut(change func([]reads.Shown) []reads.Shown) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.Shown = change(r.record.Shown)
}

// End ends the read. If the request was not answered, what it would have been shown is not recorded.
func (r *Read) End(answered bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if answered && (len(r.record.Shown) > 0 || r.asked && r.record.Part == 0) {
		r.keep()
	}
	r.hold.Release()
	r.hold = nil
}

// keep passes on the record with its reservation, and begins the next part.
func (r *Read) keep() {
	done := r.record
	if done.Shown == nil {
		done.Shown = []reads.Shown{}
	}
	r.keeper.Keep(r.owner, done, r.hold)
	r.record.Part++
	r.record.Shown, r.hold = nil, nil
	clear(r.seen)
}
