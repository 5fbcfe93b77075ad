package erasure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/internal/work"
)

// People erases people from projects. The erasure of a person is a process: Start begins it, and the finisher takes
// its steps until it has ended, even if nobody looks. Its stream holds what was done, and the row
// that Names keeps the name. Every step may be repeated, so a crash, or two finishers at once, do no harm. After a
// restore from a backup, which holds the log alone, nobody continues an open process: Start begins another one.
//
// Find, Start and Status may be called at any time, and need neither Commands nor Calls; the rest by one caller at a
// time.
type People struct {
	Streams
	Names      personNames
	DataPoints authoredList
	Records    recordList
	Commands   personCommands
	Calls      personCalls
	Progress   progress
	// Pending counts what this process has yet to erase; nil if another one erases.
	Pending func(context.Context) (work.Open, error)

	// runs hold what a step that takes several slices has done so far.
	runs map[uuid.UUID]*forgetRun

	mu sync.Mutex
	// failures are the errors of the last step of each process that failed.
	failures map[uuid.UUID]string
}

// personNames keeps the names of the people who are being erased.
type personNames interface {
	Keep(ctx context.Context, p erasures.Person) (uuid.UUID, error)
	Open(ctx context.Context) ([]erasures.Person, error)
	Has(ctx context.Context, project, id uuid.UUID) (bool, error)
	Drop(ctx context.Context, e erasures.Ended) error
}

// authoredList finds the live data points of an author.
type authoredList interface {
	// CountAuthored counts those whose newest revision the author wrote, and those of which only earlier ones are.
	CountAuthored(ctx context.Context, project uuid.UUID, author string) (newest, earlier int, err error)
	// ListAuthored returns the source ids of some of both.
	ListAuthored(ctx context.Context, project uuid.UUID, author string, limit int) ([]string, error)
	// CountUncleaned counts the deletions of a project up to a position that are not cleaned.
	CountUncleaned(ctx context.Context, project uuid.UUID, to eventstore.Position) (int, error)
}

// recordList finds identity records.
type recordList interface {
	// FindRecord reports whether there is a record, and whether a removal of it is not cleared.
	FindRecord(ctx context.Context, project, record uuid.UUID) (has, removing bool, err error)
}

// personCommands are the commands in the project of a person.
type personCommands interface {
	// DeleteOf returns the id of the deletion, zero if a client deleted one of the data points since.
	DeleteOf(ctx context.Context, p erasures.Person, sourceIDs []string) (uuid.UUID, error)
	RemoveRecord(ctx context.Context, p erasures.Person) error
}

// personCalls removes people from the request log.
type personCalls interface {
	BlankPerson(ctx context.Context, r *requestlog.PersonRun) (done bool, err error)
	DirtyAll(ctx context.Context) error
}

// Person is what a project holds of an identity.
type Person struct {
	// Newest counts the data points whose newest revision the identity wrote, Earlier those of which it wrote earlier
	// revisions only.
	Newest  int `json:"newest"`
	Earlier int `json:"earlier"`
	// HasRecord reports whether the identity has a directory record, Removing whether a removed one is not erased from the
	// disk.
	HasRecord bool `json:"hasRecord"`
	Removing  bool `json:"removing"`
}

// Find returns what a project holds of an identity. The fault is invalid-request for an empty name.
func (p *People) Find(ctx context.Context, project uuid.UUID, identity string) (found Person, err error) {
	if identity == "" {
		return found, errUnnamed
	}
	if err := p.waitHead(ctx); err != nil {
		return found, err
	}
	if found.Newest, found.Earlier, err = p.DataPoints.CountAuthored(ctx, project, identity); err != nil {
		return found, err
	}
	record, err := p.Projects.AuthorID(ctx, project, identity)
	if err != nil {
		return found, err
	}
	found.HasRecord, found.Removing, err = p.Records.FindRecord(ctx, project, record)
	return found, err
}

var errUnnamed = fault.New(fault.Invalid, fault.CodeInvalidRequest, "an identity must be named")

// Start begins the erasure of a person, and returns its id. If the person is being erased already, that is the id of
// that erasure. The faults are invalid-request, for an empty name, and conflict, for too many people of the project.
func (p *People) Start(ctx context.Context, person erasures.Person) (id uuid.UUID, err error) {
	if person.Identity == "" {
		return uuid.Nil, errUnnamed
	}
	for {
		person.ID, person.RequestedAt = uuid.New(), p.Now()
		if person.ID, err = p.Names.Keep(ctx, person); err != nil {
			return uuid.Nil, err
		}
		s, err := p.read(ctx, person.ID)
		if err != nil {
			return uuid.Nil, err
		}
		if s.Phase != erasure.Done {
			return person.ID, p.begin(ctx, person, s)
		}
		// It has ended, and its row is about to go: what was written since needs another one.
		if err := p.drop(ctx, person.ID, s); err != nil {
			return uuid.Nil, err
		}
	}
}

// drop lets the name of an erasure go, which has ended.
func (p *People) drop(ctx context.Context, id uuid.UUID, s personState) error {
	return p.Names.Drop(ctx, erasures.Ended{ID: id, EndedAt: p.Now(), DataPoints: s.DataPoints()})
}

// begin records the request, unless that is done.
func (p *People) begin(ctx context.Context, person erasures.Person, s personState) error {
	if s.Events > 0 {
		return nil
	}
	record, err := p.Projects.AuthorID(ctx, person.ProjectID, person.Identity)
	if err != nil {
		return err
	}
	e := erasure.Requested{ProjectID: person.ProjectID, RecordID: record, RequestedAt: person.RequestedAt}
	return p.record(ctx, person, s, person.By, e)
}

// PersonStatus is the state of an erasure.
type PersonStatus struct {
	ID uuid.UUID `json:"id"`
	// By is the principal who began it. BegunAt and EndedAt are the times of its first and its last event, EndedAt nil
	// until it ended.
	By      string        `json:"by"`
	BegunAt time.Time     `json:"begunAt,omitzero"`
	EndedAt *time.Time    `json:"endedAt"`
	Phase   erasure.Phase `json:"phase"`
	// Receipts are those of the deletions, in order.
	Receipts []erasure.Receipt `json:"receipts"`
	// Record reports whether a directory record was removed. Calls counts the calls that were blanked, and Called reports
	// whether one of them was a call as the person.
	Record bool `json:"record"`
	Called bool `json:"called"`
	Calls  int  `json:"calls"`
	// Uncleaned counts the deletions of the project, and the removal of the record, that are not erased from the disk.
	Uncleaned int `json:"uncleaned"`
	// Waits is true if some of them have to wait for another operation, although the disks were purged. The erasure goes
	// on once they are erased.
	Waits bool `json:"waits"`
	// WroteAgain is true if the erasure ended because the person kept on writing.
	WroteAgain bool `json:"wroteAgain"`
	// Erased is what the last purge of the disks did, and what waits now; nil before it, and if another process erases.
	Erased *Report `json:"erased"`
	// Failure is why the last step failed in this process, "" if it did not. The step is retried.
	Failure string `json:"failure,omitempty"`
}

// Status returns the state of an erasure. The fault is not-found.
func (p *People) Status(ctx context.Context, project, id uuid.UUID) (out PersonStatus, err error) {
	// Read the row first: an erasure has ended once its name is gone.
	kept, err := p.Names.Has(ctx, project, id)
	if err != nil {
		return out, err
	}
	s, err := p.read(ctx, id)
	if err == nil && s.ProjectID != project {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "the project has no erasure %s", id)
	}
	if err != nil {
		return out, err
	}
	p.mu.Lock()
	failure := p.failures[id]
	p.mu.Unlock()
	out = PersonStatus{
		ID: id, Phase: s.Phase, Receipts: append([]erasure.Receipt{}, s.Receipts...), Record: s.Record, Called: s.Called,
		Calls: s.Calls, WroteAgain: s.WroteAgain, Failure: failure, By: s.by, BegunAt: s.begunAt,
	}
	if !s.endedAt.IsZero() && !kept {
		out.EndedAt = &s.endedAt
	}
	switch {
	case s.Phase == erasure.Done && kept:
		out.Phase = erasure.Checking
	case s.Phase == erasure.Purging, s.Phase == erasure.Checking:
		out.Uncleaned, err = p.countUncleaned(ctx, s)
		out.Waits = s.Phase == erasure.Checking && out.Uncleaned > 0
	}
	if err == nil && s.Purge != nil && p.Pending != nil {
		out.Erased = &Report{
			Deletions: s.Purge.Deletions, Identities: s.Purge.Identities, Streams: s.Purge.Streams, Blobs: s.Purge.Blobs,
			Tables: s.Purge.Tables, Indexes: s.Purge.Indexes, Store: s.Purge.Store,
		}
		out.Erased.Left, err = p.Pending(ctx)
	}
	return out, err
}

// countUncleaned counts what has to be erased from the disk before the project is looked at again.
func (p *People) countUncleaned(ctx context.Context, s personState) (int, error) {
	n, err := p.DataPoints.CountUncleaned(ctx, s.ProjectID, s.forgottenAt)
	if err != nil {
		return n, err
	}
	_, removing, err := p.Records.FindRecord(ctx, s.ProjectID, s.RecordID)
	if removing {
		n++
	}
	return n, err
}

// personState is the state of an erasure, and where its last event of the person's being forgotten is.
type personState struct {
	erasure.State
	forgottenAt eventstore.Position
	// by is who began it.
	by               string
	begunAt, endedAt time.Time
}

func (p *People) read(ctx context.Context, id uuid.UUID) (s personState, err error) {
	err = p.Journal.Scan(ctx, stream.Name(stream.Erasure, id), 0, func(e eventstore.DecodedEvent) (bool, error) {
		switch s.Evolve(e.Event); e.Event.(type) {
		case *erasure.Requested:
			s.by, s.begunAt = e.Details.Principal, e.Details.At
		case *erasure.Ended:
			s.endedAt = e.Details.At
		}
		if s.Phase == erasure.Purging {
			s.forgottenAt = e.Position
		}
		return true, nil
	})
	return s, err
}

// record appends what was done after a state. If another process was first, the next step reads that.
func (p *People) record(
	ctx context.Context, person erasures.Person, s personState, by string, e event.Event,
) error {
	meta := event.NewMeta(by, p.Now()).Of(person.ID)
	_, err := p.Journal.Append(ctx, stream.Name(stream.Erasure, person.ID), eventstore.Revision(s.Events-1), meta, e)
	if errors.Is(err, eventstore.ErrConflict) {
		return nil
	}
	return err
}

// waitHead waits until the tables show the head of the log.
func (p *People) waitHead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	head, err := p.Journal.Store.Head(ctx)
	if err != nil {
		return err
	}
	return p.Progress.Wait(ctx, head, projection.DataPoints, projection.Directory)
}

// personTurn is about how long the erasures of a project go on before those of the next one.
const personTurn = time.Second

// finisherName is the principal of what a finisher does by itself.
const finisherName = "finisher"

// forgetRun is how far a person is forgotten.
type forgetRun struct {
	// record reports whether there was an identity record, removed whether it is removed.
	record, removed bool
	calls           requestlog.PersonRun
}

// Pass gives the erasures of each project a turn, and returns those that wait for a purge. A failure of one erasure is
// logged and holds up no other project; it is retried in the next pass.
func (p *People) Pass(ctx context.Context) (purging []erasures.Person, err error) {
	open, err := p.Names.Open(ctx)
	if err != nil {
		return nil, err
	}
	p.forgetOthers(open)
	spent := make(map[uuid.UUID]time.Duration)
	for _, person := range open {
		more, began := true, time.Now()
		for left := personTurn - spent[person.ProjectID]; more && time.Since(began) < left && ctx.Err() == nil; {
			var phase erasure.Phase
			phase, more, err = p.slice(ctx, person)
			switch {
			case err != nil:
				p.Logger.WarnContext(ctx, "erasure of a person failed, will retry", "erasure", person.ID,
					"project", person.ProjectID, "err", err)
				p.note(person, err)
			case phase == erasure.Purging:
				purging = append(purging, person)
			default:
				p.note(person, nil)
			}
		}
		spent[person.ProjectID] += time.Since(began)
	}
	return purging, ctx.Err()
}

// forgetOthers forgets what is known of erasures that are not open, and lets those come last that failed: a failure may
// take all of a turn.
func (p *People) forgetOthers(open []erasures.Person) {
	p.mu.Lock()
	defer p.mu.Unlock()
	runs, failures := make(map[uuid.UUID]*forgetRun), make(map[uuid.UUID]string)
	for _, person := range open {
		if r := p.runs[person.ID]; r != nil {
			runs[person.ID] = r
		}
		if failure, failed := p.failures[person.ID]; failed {
			failures[person.ID] = failure
		}
	}
	p.runs, p.failures = runs, failures
	slices.SortStableFunc(open, func(a, b erasures.Person) int {
		return len(failures[a.ID]) - len(failures[b.ID])
	})
}

// note remembers how the last step of an erasure ended, for Status.
func (p *People) note(person erasures.Person, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failures[person.ID] = err.Error()
	} else {
		delete(p.failures, person.ID)
	}
}

// slice takes a slice of the next step, within stepTimeout. more is false if the erasure has to wait or has ended.
func (p *People) slice(ctx context.Context, person erasures.Person) (phase erasure.Phase, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err = panics.Call(ctx, p.Logger, "erasure of a person panicked", func() error {
		s, err := p.read(ctx, person.ID)
		if err != nil {
			return err
		}
		phase = s.Phase
		more, err = p.step(ctx, person, s)
		return err
	}, "erasure", person.ID)
	return phase, more && err == nil, err
}

func (p *People) step(ctx context.Context, person erasures.Person, s personState) (more bool, err error) {
	switch s.Phase {
	case erasure.Deleting:
		return p.eraseSome(ctx, person, s)
	case erasure.Purging:
		delete(p.runs, person.ID)
		return false, nil
	case erasure.Checking:
		if left, err := p.countUncleaned(ctx, s); err != nil || left > 0 {
			return false, err
		}
		return p.eraseSome(ctx, person, s)
	case erasure.Done:
		return false, p.drop(ctx, person.ID, s)
	default: // a crash came between the row and the event
		return true, p.begin(ctx, person, s)
	}
}

// eraseSome deletes some data points of the person. Once there are none it forgets the person, or ends the erasure if
// that is done.
func (p *People) eraseSome(ctx context.Context, person erasures.Person, s personState) (more bool, err error) {
	if err := p.waitHead(ctx); err != nil {
		return false, err
	}
	ids, err := p.DataPoints.ListAuthored(ctx, person.ProjectID, person.Identity, limit.DeletionIDs)
	if err != nil {
		return false, err
	}
	has, _, err := p.Records.FindRecord(ctx, s.ProjectID, s.RecordID)
	if err != nil {
		return false, err
	}
	if left := len(ids) > 0 || has; s.Phase == erasure.Checking && (!left || s.Rounds >= erasure.Rounds) {
		e := erasure.Ended{ProjectID: s.ProjectID, WroteAgain: left, EndedAt: p.Now()}
		return true, p.record(ctx, person, s, finisherName, e)
	}
	if len(ids) == 0 {
		return true, p.forget(ctx, person, s, has)
	}
	deletion, err := p.Commands.DeleteOf(ctx, person, ids)
	if err != nil || deletion == uuid.Nil {
		return true, err
	}
	e := erasure.DataPointsDeleted{ProjectID: s.ProjectID, DeletionID: deletion, DataPoints: len(ids)}
	return true, p.record(ctx, person, s, finisherName, e)
}

// forget removes the record, and then the name from the request log: the removal is not logged there.
func (p *People) forget(ctx context.Context, person erasures.Person, s personState, has bool) error {
	r := p.runs[person.ID]
	if r == nil {
		r = &forgetRun{calls: requestlog.PersonRun{Project: person.ProjectID, Identity: person.Identity}}
		p.runs[person.ID] = r
	}
	r.record = r.record || has
	if !r.removed {
		if err := p.Commands.RemoveRecord(ctx, person); err != nil {
			return err
		}
		r.removed = true
	}
	done, err := p.Calls.BlankPerson(ctx, &r.calls)
	if err != nil || !done {
		return err
	}
	return p.record(ctx, person, s, finisherName, erasure.PersonForgotten{
		ProjectID: s.ProjectID, Record: r.record, Calls: r.calls.Calls, Called: r.calls.Called,
	})
}

// PreparePurge is called before the purge that some erasures wait for.
func (p *People) PreparePurge(ctx context.Context) error { return p.Calls.DirtyAll(ctx) }

// RecordPurge records a purge that began after some people were forgotten. err is why nothing was purged, or nil.
func (p *People) RecordPurge(ctx context.Context, people []erasures.Person, done Report, err error) error {
	purge := erasure.Purge{
		Deletions: done.Deletions, Identities: done.Identities, Streams: done.Streams, Blobs: done.Blobs,
		Tables: done.Tables, Indexes: done.Indexes, Store: done.Store,
	}
	for _, person := range people {
		if p.note(person, err); err != nil {
			continue
		}
		s, err := p.read(ctx, person.ID)
		if err == nil && s.Phase == erasure.Purging {
			err = p.record(ctx, person, s, finisherName, erasure.Purged{ProjectID: s.ProjectID, Purge: purge})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
