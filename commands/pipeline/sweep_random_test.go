package pipeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
)

// story is a random history of a project whose texts lie in blobs, written by processes that die.
type story struct {
	*scene
	rand  *rand.Rand
	sends []uuid.UUID
	swept int
}

// alive is a process: mostly one that dies at one of its next writes.
func (s *story) alive() *commands.Service {
	s.call.ReceivedAt = s.clock.now()
	if s.rand.IntN(3) == 0 {
		return s.write
	}
	service, _ := s.services(s.mortal(5))
	return service
}

// mortal is a store that dies at one of its next writes.
func (s *story) mortal(writes int) eventstore.Store {
	return serial{&victim{Store: s.store, left: s.rand.IntN(writes), stored: s.rand.IntN(2) == 0}, make(chan struct{}, 1)}
}

// done looks at how an operation ended: a refusal is an answer, and so is death.
func (s *story) done(err error) {
	s.t.Helper()
	if _, refused := errors.AsType[*fault.Error](err); err != nil && !refused && !errors.Is(err, errDied) {
		s.t.Fatal(err)
	}
}

func (s *story) name() string { return fmt.Sprint("id ", s.rand.IntN(4)) }

func (s *story) text() commands.DataPoint {
	content := fmt.Sprint("text ", s.rand.IntN(3))
	if s.rand.IntN(3) > 0 {
		content = big + content
	}
	return item(s.name(), content)
}

func (s *story) key() string {
	if s.rand.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprint("key ", s.rand.IntN(3))
}

func (s *story) single() {
	r, err := s.alive().Ingest(s.t.Context(), s.call, s.text(), s.key())
	s.sends = append(s.sends, r.IngestionID)
	s.done(err)
}

func (s *story) batch() {
	var items []commands.DataPoint
	seen := map[string]bool{}
	for range 1 + s.rand.IntN(3) {
		if in := s.text(); !seen[*in.ID] {
			seen[*in.ID] = true
			items = append(items, in)
		}
	}
	r, err := s.alive().IngestBatch(s.t.Context(), s.call, items, s.key())
	s.sends = append(s.sends, r.IngestionID)
	s.done(err)
}

func (s *story) deleteOne() {
	_, err := s.alive().DeleteDataPoints(s.t.Context(), s.call, []string{s.name()})
	s.done(err)
}

func (s *story) deleteSend() {
	if len(s.sends) > 0 {
		s.done(s.alive().DeleteSend(s.t.Context(), s.call, s.sends[s.rand.IntN(len(s.sends))]))
	}
}

// derive stores memories in a blob; now and then the worker dies before it refers to it.
func (s *story) derive() {
	point := stream.DataPointID(s.call.Principal.Project.Namespace, s.name())
	project, meta := s.call.Principal.Project.ID, event.NewMeta("test", time.Now())
	ref, err := s.log.WriteBlob(s.t.Context(), point, meta.CommandID, project, s.clock.now().Add(blob.Keep), meta,
		[]byte("[]"))
	s.must(err)
	name := stream.Name(stream.Memory, point)
	last, ok, err := s.log.Last(s.t.Context(), name)
	if errors.Is(err, eventstore.ErrDeleted) || s.rand.IntN(3) == 0 {
		return
	}
	s.must(err)
	expected := eventstore.NoStream
	if ok {
		expected = last.Revision
	}
	_, err = s.log.Append(s.t.Context(), name, expected, meta, memory.Derived{ProjectID: project, Revision: 1, Blob: &ref})
	s.must(err)
}

func (s *story) wait() { s.clock.move(time.Duration(s.rand.Int64N(int64(3 * blob.Keep / 2)))) }

// finish lets the finisher do all that it can, or lets it die in the middle.
func (s *story) finish() {
	s.passHead()
	if s.rand.IntN(3) == 0 {
		_, finisher := s.services(s.mortal(6))
		finisher.Now, finisher.Eraser.Now = s.clock.now, s.clock.now
		done, err := finisher.EraseNow(s.t.Context())
		s.swept += done.Blobs
		if err != nil && !errors.Is(err, errDied) {
			s.t.Fatal(err)
		}
		return
	}
	done, err := s.finisher.EraseNow(s.t.Context())
	s.swept += done.Blobs
	s.must(err)
}

// sweepOnly sweeps without completing anything before.
func (s *story) sweepOnly() { s.swept += s.harness.swept() }

// race lets a sender and the finisher run at the same time.
func (s *story) race() {
	s.passHead()
	finished := make(chan error, 1)
	go func() {
		done, err := s.finisher.EraseNow(s.t.Context())
		s.swept += done.Blobs
		finished <- err
	}()
	if s.rand.IntN(2) == 0 {
		s.batch()
	} else {
		s.single()
	}
	s.must(<-finished)
}

// whatIsReferredTo are the blobs that an event of a stream that stands refers to, and the stages
// of batches that are to be fanned out.
func (s *story) whatIsReferredTo() []blob.Ref {
	s.t.Helper()
	names := map[string]bool{}
	for _, r := range eventstoretest.All(s.t, s.store, s.start) {
		names[r.Stream] = !r.System()
	}
	var refs []blob.Ref
	for name, ours := range names {
		family := stream.Category(name)
		if !ours || family == stream.Blob {
			continue
		}
		facts, err := s.log.ReadFrom(s.t.Context(), name, 0)
		if errors.Is(err, eventstore.ErrDeleted) {
			continue
		}
		s.must(err)
		open := false
		for _, f := range facts {
			switch e := f.Event.(type) {
			case *datapoint.RevisionAccepted:
				if e.Content.Blob != nil {
					refs = append(refs, *e.Content.Blob)
				}
			case *memory.Derived:
				refs = append(refs, *e.Blob)
			case *ingestion.Accepted:
				open = true
			case *ingestion.FannedOut:
				open = false
			}
		}
		if open {
			refs = append(refs, facts[0].Event.(*ingestion.Accepted).Stage)
		}
	}
	return refs
}

// Whatever sends, batches, deletions and derivations do and wherever they die, no blob is taken
// that a stream refers to which stands, nor the stage of a batch that is still to be fanned out;
// and once all is finished, none is left that nothing refers to.
func TestSweep_RandomOperations(t *testing.T) {
	t.Parallel()
	runs := 8
	if testing.Short() {
		runs = 3
	}
	if text := os.Getenv("ANNALS_SWEEPS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newIdleHarness(t)
	swept, referred := 0, 0
	for seed := range runs {
		rng := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // a fixed seed repeats the walk
		s := &story{scene: w.begin(operation{}), rand: rng}
		steps := []func(){
			s.single, s.single, s.batch, s.batch, s.batch, s.deleteOne, s.deleteSend, s.derive, s.derive,
			s.wait, s.wait, s.race, s.race, s.finish, s.sweepOnly, s.sweepOnly,
		}
		held := func(when string) {
			t.Helper()
			refs := s.whatIsReferredTo()
			referred += len(refs)
			for _, ref := range refs {
				if _, err := w.log.ReadBlob(t.Context(), ref); err != nil {
					t.Fatalf("history %d, %s: %s is referred to: %v", seed, when, ref.Stream, err)
				}
			}
		}
		for n := range 14 {
			steps[s.rand.IntN(len(steps))]()
			held(fmt.Sprint("step ", n))
		}
		w.clock.move(2 * blob.Keep)
		for range 2 {
			s.finish()
		}
		_, err := w.finisher.EraseNow(t.Context())
		s.must(err)
		held("in the end")
		used := map[string]bool{}
		for _, ref := range s.whatIsReferredTo() {
			used[ref.Stream] = true
		}
		w.passHead()
		var left int
		err = w.db.QueryRow(t.Context(), `select count(*) from datapoints.blobs where project_id = $1`,
			w.call.Principal.Project.ID).Scan(&left)
		if err != nil || left != len(used) {
			t.Fatalf("history %d: %d blobs are left, %d are referred to, %v", seed, left, len(used), err)
		}
		swept += s.swept
	}
	if swept == 0 || referred == 0 {
		t.Errorf("%d blobs were swept, %d references held", swept, referred)
	}
	t.Logf("%d histories: %d blobs were swept, %d references held", runs, swept, referred)
}
