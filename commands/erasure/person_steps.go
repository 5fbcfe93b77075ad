package erasure

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/internal/requestlog"
)

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
