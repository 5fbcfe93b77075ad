// Package readlog collects what a request is shown of the texts of a project whose reads are recorded. The edge and the
// pages put a Read into the context of the request, the queries that return texts add what they show, and the end of
// the request keeps it. Where reads are proved, what writes an answer stores the read before the first byte, and before
// each part of a long answer. A request of another project has no Read, and all of this does nothing.
package readlog

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/project"
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
	// Prove returns once a record is in the log, and releases its reservation. The error is service-unavailable: then
	// what the record names must not be shown. The record may be in the log all the same.
	Prove(ctx context.Context, o allowance.Owner, r reads.Record, hold *allowance.Hold) error
}

// Read is what one request is shown. Its methods may be called at the same time. A nil Read records nothing.
type Read struct {
	keeper    Keeper
	owner     allowance.Owner
	namespace uuid.UUID
	proved    bool

	mu     sync.Mutex
	hold   *allowance.Hold
	record reads.Record
	seen   map[uuid.UUID]bool
	asked  bool
	// composed reports that another answer is made of this one, and lost is what to do if that is not given.
	composed bool
	lost     []func()
}

// Open makes the read of a request, with room for its record. The error is service-unavailable if there is none in
// time.
func Open(ctx context.Context, keeper Keeper, p auth.Principal, request uuid.UUID, at time.Time) (*Read, error) {
	r := &Read{
		keeper: keeper, owner: allowance.Owner{Organization: p.OrganizationID, Project: p.Project.ID},
		namespace: p.Project.Namespace, seen: map[uuid.UUID]bool{}, proved: p.Project.Reads == project.ReadsProved,
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

// Show adds texts that are about to be shown. The error is service-unavailable if there is no room for them in time, or
// a part cannot be stored: then they must not be shown.
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
		if r.hold == nil { // the part before is kept
			r.hold = r.keeper.Room().Open(r.owner)
			if err := r.hold.Reserve(ctx, RecordBytes); err != nil {
				return err
			}
		}
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
		if !r.proved {
			r.keep()
		} else if err := r.prove(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Store returns once what was shown is in the log, if the reads of the project are proved. Whatever writes an answer
// calls it before the first byte, and what writes a long one before each part. The error is service-unavailable: then
// the answer must not be given.
func (r *Read) Store(ctx context.Context) error {
	if r == nil || !r.proved {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.composed || !r.waits() {
		return nil
	}
	return r.prove(ctx)
}

// Compose has the texts of the calls that follow wait for Cut: another answer is made of theirs.
func (r *Read) Compose() {
	if r != nil {
		r.composed = true
	}
}

// Unless takes what to do if the answer that is composed cannot be given.
func (r *Read) Unless(given func()) {
	if r == nil || !r.proved {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.composed {
		r.lost = append(r.lost, given)
	}
}

// Cut changes the texts of the last part to those that are left in the answer that was composed, and stores it as Store
// does.
func (r *Read) Cut(ctx context.Context, change func([]reads.Shown) []reads.Shown) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.record.Shown, r.composed = change(r.record.Shown), false
	lost := r.lost
	r.mu.Unlock()
	err := r.Store(ctx)
	if err != nil {
		for _, undo := range lost {
			undo()
		}
	}
	return err
}

// End ends the read. If the request was not answered, what it would have been shown is not recorded.
func (r *Read) End(answered bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if answered && r.waits() {
		r.keep()
	}
	r.hold.Release()
	r.hold = nil
}

// waits reports whether there is something to record.
func (r *Read) waits() bool { return len(r.record.Shown) > 0 || r.asked && r.record.Part == 0 }

// keep passes on the record with its reservation, and begins the next part.
func (r *Read) keep() {
	done, hold := r.next()
	r.keeper.Keep(r.owner, done, hold)
}

// prove is keep of a record that is in the log then.
func (r *Read) prove(ctx context.Context) error {
	done, hold := r.next()
	return r.keeper.Prove(ctx, r.owner, done, hold)
}

// next begins the next part, and returns the one that ends with its reservation.
func (r *Read) next() (reads.Record, *allowance.Hold) {
	done, hold := r.record, r.hold
	if done.Shown == nil {
		done.Shown = []reads.Shown{}
	}
	r.record.Part++
	r.record.Shown, r.hold = nil, nil
	clear(r.seen)
	return done, hold
}
