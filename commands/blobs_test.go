package commands_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

// suspended is the store of a machine that is suspended at one of its writes.
type suspended struct {
	eventstore.Store
	mu  sync.Mutex
	now time.Time
	// before and after are called around the append of an event to a stream, before also ahead of
	// its tombstone.
	before, after func(family, name string)
	blobs         []string
}

func (s *suspended) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *suspended) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *suspended) Append(
	ctx context.Context, name string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	family := stream.Category(name)
	if family == stream.Blob && expected == eventstore.NoStream {
		s.blobs = append(s.blobs, name)
	}
	if s.before != nil {
		s.before(family, name)
	}
	done, err := s.Store.Append(ctx, name, expected, events)
	if s.after != nil {
		s.after(family, name)
	}
	return done, err
}

func (s *suspended) Tombstone(
	ctx context.Context, name string, expected eventstore.Revision,
) (eventstore.Position, error) {
	if s.before != nil {
		s.before("tombstone", name)
	}
	return s.Store.Tombstone(ctx, name, expected)
}

func newSuspended(t *testing.T) (*fixture, *suspended) {
	s := &suspended{Store: eventstoretest.NewMemory()}
	w := fixtureOver(t, s)
	s.now = w.call.ReceivedAt
	w.log.Now = s.clock
	return w, s
}

var bigText = strings.Repeat("a long text ", 40_000)

// sends are the two ways by which text gets into a blob: that of a data point, and the stage of a
// batch.
var sends = map[string]struct {
	family string // of the event that refers to the blob
	send   func(*fixture) error
	keep   time.Duration
}{
	"a text": {stream.DataPoint, func(w *fixture) error {
		_, err := w.Ingest(w.t.Context(), w.call, dataPoint("a", bigText), "")
		return err
	}, blob.Keep},
	"a stage": {stream.Ingestion, func(w *fixture) error {
		_, err := w.IngestBatch(w.t.Context(), w.call, []ingest.DataPoint{dataPoint("a", "short")}, "")
		return err
	}, blob.StageKeep},
}

func dataPoint(id, content string) ingest.DataPoint {
	return ingest.DataPoint{ID: &id, Content: content}
}

func wantHeldUp(t *testing.T, err error) {
	t.Helper()
	var refused *fault.Error
	if !errors.As(err, &refused) || refused.Code != fault.CodeServiceUnavailable ||
		!strings.Contains(refused.Msg, "held up") {
		t.Fatalf("got %v, want the 503 of a service that was held up", err)
	}
}

// A machine that was suspended between a blob and the event that refers to it does not store the
// event, because the blob may be swept.
func TestBlob_SuspendedBeforeTheAppend(t *testing.T) {
	for name, tt := range sends {
		t.Run(name, func(t *testing.T) {
			w, s := newSuspended(t)
			s.after = func(family, _ string) {
				if family == stream.Blob {
					s.sleep(tt.keep)
				}
			}
			s.before = func(family, name string) {
				if family == tt.family {
					t.Errorf("%s was written", name)
				}
			}
			wantHeldUp(t, tt.send(w))
			s.after, s.before = nil, nil
			if err := tt.send(w); err != nil {
				t.Errorf("the same again, awake: %v", err)
			}
		})
	}
}

// A machine that was suspended during the append checks the blob before it acknowledges: a blob
// that exists is kept, and a swept one is not acknowledged.
func TestBlob_SuspendedDuringTheAppend(t *testing.T) {
	for name, tt := range sends {
		for _, swept := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w, s := newSuspended(t)
				slept := false
				s.before = func(family, _ string) {
					if family != tt.family || slept {
						return
					}
					slept = true
					s.sleep(tt.keep)
					if swept {
						gone, err := w.eraser().SweepBlob(t.Context(), s.blobs[0], s.clock().Add(blob.Keep))
						if err != nil || !gone {
							t.Errorf("the blob was not swept: %v", err)
						}
					}
				}
				err := tt.send(w)
				if !slept {
					t.Fatal("nothing was written")
				}
				if swept {
					wantHeldUp(t, err)
					return
				}
				runtest.Must(t, err)
				if name == "a stage" {
					return // fanned out by now, and its stage is dropped
				}
				gone, err := w.eraser().SweepBlob(t.Context(), s.blobs[0], s.clock().Add(30*blob.Keep))
				if err != nil || gone {
					t.Errorf("swept %v, %v", gone, err)
				}
				w.wantBlob(s.blobs[0])
			})
		}
	}
}

// wantBlob reads the text of the data point from its blob.
func (w *fixture) wantBlob(name string) {
	w.t.Helper()
	id := stream.DataPointID(w.call.Principal.Project.Namespace, "a")
	f, ok, err := w.log.Last(w.t.Context(), stream.Name(stream.DataPoint, id))
	accepted, is := f.Event.(*datapoint.RevisionAccepted)
	if err != nil || !ok || !is || accepted.Content.Blob == nil || accepted.Content.Blob.Stream != name {
		w.t.Fatalf("the data point is %+v, %v", f.Event, err)
	}
	text, err := w.log.ReadBlob(w.t.Context(), *accepted.Content.Blob)
	if err != nil || string(text) != bigText {
		w.t.Errorf("the text is %d bytes, %v", len(text), err)
	}
}

// A sweep that found no reference leaves the blob alone if its writer appends to it first.
func TestBlob_WriterBeforeTheTombstone(t *testing.T) {
	w, s := newSuspended(t)
	arrived, swept := make(chan struct{}), make(chan error, 1)
	goOn := make(chan struct{})
	var once sync.Once
	s.before = func(family, name string) {
		switch {
		case family == stream.DataPoint:
			// The sweep looks for references before the event exists, and tombstones the blob after
			// that.
			once.Do(func() {
				s.sleep(2 * blob.Keep)
				go func() {
					gone, err := w.eraser().SweepBlob(context.Background(), s.blobs[0], s.clock())
					if gone {
						err = errors.Join(err, errors.New("the blob was swept"))
					}
					swept <- err
				}()
				<-arrived
			})
		case family == "tombstone":
			close(arrived)
			<-goOn
		}
	}
	runtest.Must(t, sends["a text"].send(w))
	close(goOn)
	if err := <-swept; err != nil {
		t.Error(err)
	}
	w.wantBlob(s.blobs[0])
}

// An append in time writes nothing to the blob.
func TestBlob_InTime(t *testing.T) {
	w, s := newSuspended(t)
	s.after = func(family, _ string) {
		if family == stream.Blob {
			s.sleep(blob.StageKeep/2 - time.Second)
		}
	}
	runtest.Must(t, sends["a text"].send(w))
	last, ok, err := w.log.Last(t.Context(), s.blobs[0])
	chunk, is := last.Event.(blob.Chunk)
	if err != nil || !ok || !is || len(chunk.Data) == 0 {
		t.Errorf("the blob ends with %T, %v", last.Event, err)
	}
	runtest.Must(t, errorOf(w.IngestBatch(t.Context(), w.call, []ingest.DataPoint{dataPoint("b", "short")}, "key")))
	id := stream.IngestionID(w.call.Principal.Project.Namespace, "key")
	if f, ok, err := w.log.At(t.Context(), stream.Name(stream.Ingestion, id), 0); err != nil || !ok {
		t.Errorf("the batch: %v", err)
	} else if _, is := f.Event.(*ingestion.Accepted); !is {
		t.Errorf("the batch begins with %T", f.Event)
	}
}
