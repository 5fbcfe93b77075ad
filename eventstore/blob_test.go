package eventstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/runtest"
)

var (
	owner, command, projectID = uuid.New(), uuid.New(), uuid.New()
	deadline                  = time.Date(2026, 11, 6, 9, 30, 0, 123456789, time.UTC)
	byPipeline                = event.NewMeta("pipeline", time.Now())
)

// content returns bytes that are neither JSON nor UTF-8, and that do not repeat.
func content(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*i>>7) ^ byte(i)
	}
	return data
}

func write(t *testing.T, store eventstore.Store, data []byte) blob.Ref {
	t.Helper()
	ref, err := eventstore.Journal{Store: store, Codec: codecOf(t, domain.Catalog)}.WriteBlob(t.Context(), owner, command,
		projectID, deadline, byPipeline, data)
	runtest.Must(t, err)
	return ref
}

func TestReadBlob_ReturnsWhatWasWritten(t *testing.T) {
	const chunk = blob.ChunkSize
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 9*chunk + 17} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			store, codec, data := eventstoretest.NewMemory(), codecOf(t, domain.Catalog), content(size)
			ref := write(t, store, data)
			sum := sha256.Sum256(data)
			hash := hex.EncodeToString(sum[:])
			if want := (blob.Ref{Stream: stream.BlobName(owner, command), Size: int64(size), SHA256: hash}); ref != want {
				t.Errorf("got %+v, want %+v", ref, want)
			}
			got, err := eventstore.Journal{Store: store, Codec: codec}.ReadBlob(t.Context(), ref)
			runtest.Must(t, err)
			if !bytes.Equal(got, data) {
				t.Error("the content is another")
			}
			events, err := store.Read(t.Context(), ref.Stream, 0, eventstore.Forwards, 100)
			runtest.Must(t, err)
			opened, ok := codec.DecodeRecorded(events[0]).Event.(*blob.Opened)
			if !ok || opened.Owner != owner || opened.ProjectID != projectID ||
				!opened.Deadline.Equal(deadline.Truncate(time.Microsecond)) {
				t.Errorf("begins with %+v", codec.DecodeRecorded(events[0]))
			}
			if want := 1 + (size+blob.ChunkSize-1)/blob.ChunkSize; len(events) != want {
				t.Errorf("%d events, want %d", len(events), want)
			}
		})
	}
}

func TestWriteBlob_Repeated(t *testing.T) {
	store, data := eventstoretest.NewMemory(), content(3*blob.ChunkSize)
	first := write(t, store, data)
	head, err := store.Head(t.Context())
	runtest.Must(t, err)
	if again := write(t, store, data); again != first {
		t.Errorf("got %+v, then %+v", first, again)
	}
	if later, err := store.Head(t.Context()); err != nil || later != head {
		t.Errorf("the log grew from %d to %d: %v", head, later, err)
	}
}

// lossyStore loses, of every three appends, one append and the answer of another one.
type lossyStore struct {
	*eventstoretest.Memory
	appends int
}

func (s *lossyStore) Append(
	ctx context.Context, stream string, expected eventstore.Revision, events []eventstore.Proposed,
) (eventstore.Appended, error) {
	s.appends++
	if s.appends%3 == 1 {
		return eventstore.Appended{}, fmt.Errorf("lost: %w", eventstore.ErrUnknown)
	}
	done, err := s.Memory.Append(ctx, stream, expected, events)
	if s.appends%3 == 2 {
		return eventstore.Appended{}, fmt.Errorf("answer lost: %w", eventstore.ErrUnknown)
	}
	return done, err
}

func TestWriteBlob_LostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, data := &lossyStore{Memory: eventstoretest.NewMemory()}, content(4*blob.ChunkSize+1)
		ref := write(t, store, data)
		got, err := eventstore.Journal{Store: store, Codec: codecOf(t, domain.Catalog)}.ReadBlob(t.Context(), ref)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// deafStore leaves the outcome of every append unknown.
type deafStore struct{ *eventstoretest.Memory }

func (deafStore) Append(
	context.Context, string, eventstore.Revision, []eventstore.Proposed,
) (eventstore.Appended, error) {
	return eventstore.Appended{}, eventstore.ErrUnknown
}

func TestAppendUntilKnown_ContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := eventstore.AppendUntilKnown(ctx, deafStore{eventstoretest.NewMemory()}, "project-1", eventstore.NoStream,
			nil)
		if !errors.Is(err, eventstore.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAppendUntilKnown_DefiniteAnswer(t *testing.T) {
	store := eventstoretest.NewMemory()
	events := []eventstore.Proposed{{ID: uuid.New(), Type: "a.b.v1"}}
	_, err := eventstore.AppendUntilKnown(t.Context(), store, "project-1", 7, events)
	if !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("got %v", err)
	}
}

func TestReadBlob_MissingOrDamaged(t *testing.T) {
	for _, c := range []struct {
		name    string
		missing bool
		spoil   func(t *testing.T, store *eventstoretest.Memory, ref *blob.Ref)
	}{
		{"never written", true, func(_ *testing.T, _ *eventstoretest.Memory, ref *blob.Ref) {
			ref.Stream = stream.BlobName(owner, uuid.New())
		}},
		{"written in part", true, func(_ *testing.T, _ *eventstoretest.Memory, ref *blob.Ref) { ref.Size += 5 }},
		{"erased", true, func(t *testing.T, store *eventstoretest.Memory, ref *blob.Ref) {
			if _, err := store.Tombstone(t.Context(), ref.Stream, 3); err != nil {
				t.Fatal(err)
			}
		}},
		{"longer than it should be", false, func(_ *testing.T, _ *eventstoretest.Memory, ref *blob.Ref) { ref.Size-- }},
		{"of another hash", false, func(_ *testing.T, _ *eventstoretest.Memory, ref *blob.Ref) {
			ref.SHA256 = hex.EncodeToString(make([]byte, 32))
		}},
		{"with a stranger within", false, func(t *testing.T, store *eventstoretest.Memory, ref *blob.Ref) {
			if _, err := store.Append(t.Context(), ref.Stream, 3, []eventstore.Proposed{{ID: uuid.New(), Type: "project.archived.v1", Data: []byte(`{}`)}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"with an unknown event within", false, func(t *testing.T, store *eventstoretest.Memory, ref *blob.Ref) {
			if _, err := store.Append(t.Context(), ref.Stream, 3, []eventstore.Proposed{{ID: uuid.New(), Type: "a.b.v1", Data: []byte(`{}`)}}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := eventstoretest.NewMemory()
			ref := write(t, store, content(3*blob.ChunkSize))
			c.spoil(t, store, &ref)
			data, err := eventstore.Journal{Store: store, Codec: codecOf(t, domain.Catalog)}.ReadBlob(t.Context(), ref)
			var broken *eventstore.BlobError
			if !errors.As(err, &broken) || broken.Missing != c.missing || broken.Stream != ref.Stream || data != nil {
				t.Errorf("%d bytes, %v; want missing %t", len(data), err, c.missing)
			}
		})
	}
}

func TestReadBlob_StoreFails(t *testing.T) {
	store := eventstoretest.NewMemory()
	ref := write(t, store, content(10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := eventstore.Journal{Store: store, Codec: codecOf(t, domain.Catalog)}.ReadBlob(ctx, ref)
	var broken *eventstore.BlobError
	if !errors.Is(err, context.Canceled) || errors.As(err, &broken) {
		t.Errorf("got %v", err)
	}
}
