package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/ingest"
	domain "github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
)

// writes lets somebody write a data point of each id.
func (w *harness) writes(identity string, ids ...string) {
	w.t.Helper()
	items := make([]ingest.DataPoint, len(ids))
	for i, id := range ids {
		items[i] = item(id, identity+" wrote "+id)
		items[i].Identity = &identity
	}
	_ = w.ingestBatch(items...)
	w.passHead()
}

// person is somebody to erase from the project of the caller.
func (w *harness) person(identity string) erasures.Person {
	return erasures.Person{ProjectID: w.call.Principal.Project.ID, Identity: identity, By: "test"}
}

func (w *harness) erase(people *erasure.People, identity string) uuid.UUID {
	w.t.Helper()
	id, err := people.Start(w.t.Context(), w.person(identity))
	runtest.Must(w.t, err)
	return id
}

// peopleRound is a round of the erasure of each person.
func peopleRound(ctx context.Context, f *Finisher) (done erasure.Report) {
	f.erasePeople(ctx, false, &done)
	f.purgePeople(ctx, false, &done)
	return done
}

// finishPeople takes the steps of a finisher until no erasure of a person is open, or one fails.
func (w *harness) finishPeople(f *Finisher) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), runtest.Timeout)
	defer cancel()
	for ctx.Err() == nil {
		done := peopleRound(ctx, f)
		open, err := f.People.Names.Open(ctx)
		if err = errors.Join(append(done.Errs(), err)...); err != nil || len(open) == 0 {
			return err
		}
		for _, p := range open {
			if s, err := f.People.Status(ctx, p.ProjectID, p.ID); err != nil || s.Failure != "" {
				return fmt.Errorf("%s: %w", s.Failure, err)
			}
		}
	}
	return ctx.Err()
}

func (w *harness) status(id uuid.UUID) erasure.PersonStatus {
	w.t.Helper()
	s, err := w.finisher.People.Status(w.t.Context(), w.call.Principal.Project.ID, id)
	runtest.Must(w.t, err)
	return s
}

// left is what the project holds of an identity, and whether anything of it waits.
func (w *harness) left(identity string) erasure.Person {
	w.t.Helper()
	found, err := w.finisher.People.Find(w.t.Context(), w.call.Principal.Project.ID, identity)
	runtest.Must(w.t, err)
	return found
}

func TestErasePerson_WholeProcess(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	ids := make([]string, limit.DeletionIDs+1)
	for i := range ids {
		ids[i] = fmt.Sprint("own ", i)
	}
	for some := range slices.Chunk(ids, limit.BatchItems) {
		w.writes("quokka", some...)
	}
	w.writes("bo", "of bo")
	if found := w.left("quokka"); found != (erasure.Person{Newest: len(ids), HasRecord: true}) {
		t.Fatalf("found %+v", found)
	}
	id := w.erase(w.finisher.People, "quokka")
	if again := w.erase(w.finisher.People, "quokka"); again != id {
		t.Errorf("the person is erased by %s and %s", id, again)
	}
	if s := w.status(id); s.Phase != domain.Deleting || len(s.Receipts) != 0 {
		t.Errorf("begun: %+v", s)
	}
	runtest.Must(t, w.finishPeople(w.finisher))
	s := w.status(id)
	if s.Phase != domain.Done || len(s.Receipts) != 2 || s.Receipts[0].DataPoints+s.Receipts[1].DataPoints != len(ids) ||
		!s.Record || s.WroteAgain || s.Uncleaned != 0 || s.Erased == nil {
		t.Fatalf("ended: %+v", s)
	}
	if s.Erased.Deletions != 2 || s.Erased.Identities != 1 {
		t.Errorf("erased: %+v", s.Erased)
	}
	if found := w.left("quokka"); found != (erasure.Person{}) {
		t.Errorf("found %+v", found)
	}
	if found := w.left("bo"); found != (erasure.Person{Newest: 1, HasRecord: true}) {
		t.Errorf("of another person: %+v", found)
	}
	w.wantForgotten("quokka")
	if _, err := w.finisher.People.Status(t.Context(), uuid.New(), id); !isFault(err, fault.CodeNotFound) {
		t.Errorf("another project finds the erasure: %v", err)
	}
	if _, err := w.finisher.People.Start(t.Context(), w.person("")); !isFault(err, fault.CodeInvalidRequest) {
		t.Errorf("nobody is erased: %v", err)
	}
	if next := w.erase(w.finisher.People, "quokka"); next == id {
		t.Error("the erasure that has ended is begun again")
	}
}

func isFault(err error, code string) bool {
	f, is := errors.AsType[*fault.Error](err)
	return is && f.Code == code
}

// wantForgotten looks for a name in the tables, the index, and every event that is left.
func (w *harness) wantForgotten(name string) {
	w.t.Helper()
	if in := w.holders(name); len(in) > 0 {
		w.t.Errorf("the name is in %v", in)
	}
}

// Who writes after each round is erased three times, and no more.
func TestErasePerson_WhoGoesOnWriting(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.writes("quokka", "first")
	id := w.erase(w.finisher.People, "quokka")
	for n := range domain.Rounds {
		w.until("a round is purged", func() bool {
			done := peopleRound(t.Context(), w.finisher)
			runtest.Must(t, errors.Join(done.Errs()...))
			return w.status(id).Phase == domain.Checking
		})
		w.writes("quokka", fmt.Sprint("more ", n))
	}
	runtest.Must(t, w.finishPeople(w.finisher))
	if s := w.status(id); s.Phase != domain.Done || !s.WroteAgain || len(s.Receipts) != domain.Rounds {
		t.Errorf("ended: %+v", s)
	}
}

// While another process feeds the index, that process purges. A purge that fails is shown, and tried again.
func TestErasePerson_WaitsForThePurge(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.writes("quokka", "own")
	id := w.erase(w.finisher.People, "quokka")
	hasIndex := false
	w.finisher.Eraser.HasIndex = func() bool { return hasIndex }
	tables := w.finisher.Eraser.Tables
	w.finisher.Eraser.Tables = failing{}
	for _, has := range []bool{false, true} {
		hasIndex = has
		peopleRound(t.Context(), w.finisher)
		s := w.status(id)
		if s.Phase != domain.Purging || s.Uncleaned != 2 || s.Waits || strings.Contains(s.Failure, "no vacuum") != has {
			t.Errorf("with the index %v: %+v", has, s)
		}
	}
	w.finisher.Eraser.Tables = tables
	runtest.Must(t, w.finishPeople(w.finisher))
	if s := w.status(id); s.Phase != domain.Done || s.Failure != "" {
		t.Errorf("ended: %+v", s)
	}
}

type failing struct{}

func (failing) Vacuum(context.Context) (int, error) { return 0, errors.New("no vacuum") }

// A deletion that has to wait for another operation holds the end up, and nothing else.
func TestErasePerson_WaitsForAnotherOperation(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	w.writes("quokka", "own")
	id := w.erase(w.finisher.People, "quokka")
	rest := &copied{Queries: w.queries, all: true}
	w.finisher.Eraser.Blobs = rest
	w.until("the disk is purged", func() bool {
		peopleRound(t.Context(), w.finisher)
		return w.status(id).Phase == domain.Checking
	})
	if s := w.status(id); !s.Waits || s.Uncleaned != 2 {
		t.Errorf("while it waits: %+v", s)
	}
	rest.all = false
	_, err := w.finisher.EraseNow(t.Context())
	runtest.Must(t, err)
	runtest.Must(t, w.finishPeople(w.finisher))
	if s := w.status(id); s.Phase != domain.Done || s.Waits {
		t.Errorf("ended: %+v", s)
	}
}

// copied is a list of blobs in which any data point may have a copy in a stage.
type copied struct {
	datapoints.Queries
	all bool
}

func (c *copied) Copied(_ context.Context, _, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	have := map[uuid.UUID]bool{}
	for _, id := range ids {
		if c.all {
			have[id] = true
		}
	}
	return have, nil
}

// Wherever a process dies, the next one erases the person, and a data point is deleted once.
func TestErasePerson_CrashAfterEachAppend(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	every, from := crashes()
	for _, stored := range []bool{false, true} {
		for n := from(stored); ; n += every {
			w.openProject()
			w.writes("quokka", "own", "second")
			w.writes("bo", "of bo")
			v := &victim{left: n, stored: stored}
			_, dies := w.services(v.over(w.store))
			_, err := dies.People.Start(t.Context(), w.person("quokka"))
			if err == nil {
				err = w.finishPeople(dies)
			}
			if !v.died && err != nil {
				t.Fatal(err)
			}
			_, next := w.services(w.store)
			runtest.Must(t, next.CatchUp(t.Context()))
			id := w.erase(next.People, "quokka") // the same, unless that has ended
			runtest.Must(t, w.finishPeople(next))
			if s := w.status(id); s.Phase != domain.Done || s.WroteAgain {
				t.Fatalf("killed at write %d (stored %t): %+v", n, stored, s)
			}
			if own, other := w.left("quokka"), w.left("bo"); own != (erasure.Person{}) || other.Newest != 1 {
				t.Fatalf("killed at write %d (stored %t): %+v is left, and of another %+v", n, stored, own, other)
			}
			if !v.died {
				break
			}
		}
	}
	runtest.Must(t, w.finisher.Eraser.Store.Scavenge(t.Context()))
	w.wantForgotten("quokka")
}

// An erasure that fails holds up no other one, and no project more than the most of people.
func TestErasePerson_OthersGoOn(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	people := w.finisher.People
	w.writes("bad", "x")
	w.erase(people, "bad")
	w.writes("quokka", "y")
	id := w.erase(people, "quokka")
	people.Commands = refusesBad{people.Commands.(commands.PersonCommands)}
	w.until("the other one is erased", func() bool {
		peopleRound(t.Context(), w.finisher)
		return w.status(id).Phase == domain.Done
	})
	for n := range erasures.MaxOfProject {
		_, err := people.Start(t.Context(), w.person(fmt.Sprint("person ", n)))
		if want := n+1 == erasures.MaxOfProject; isFault(err, fault.CodeConflict) != want || err != nil && !want {
			t.Fatalf("person %d: %v", n, err)
		}
	}
	w.openProject()
	w.erase(people, "quokka")
}

type refusesBad struct{ commands.PersonCommands }

func (r refusesBad) DeleteOf(ctx context.Context, p erasures.Person, ids []string) (uuid.UUID, error) {
	if p.Identity == "bad" {
		return uuid.Nil, errors.New("refused")
	}
	return r.PersonCommands.DeleteOf(ctx, p, ids)
}
