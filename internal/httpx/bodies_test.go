package httpx

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// One body beyond the limit of an ingest is in flight at a time: it is bigger than the share that its
// organization reserves.
func TestBodies_OneLongestAtATime(t *testing.T) {
	b := newBodies(BodyBytes, time.Millisecond)
	first, second := b.open(uuid.New()), b.open(uuid.New())
	if err := first.upTo(t.Context(), IngestLimit+2); err != nil {
		t.Fatal(err)
	}
	if err := second.upTo(t.Context(), IngestLimit+1); err != nil {
		t.Fatalf("a body of an ingest is refused: %v", err)
	}
	if err := second.upTo(t.Context(), IngestLimit+2); err == nil {
		t.Error("two longest bodies are in flight")
	}
	first.release()
	if err := second.upTo(t.Context(), IngestLimit+2); err != nil {
		t.Errorf("after the first was released: %v", err)
	}
	second.release()
	if n := b.InFlight(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}
