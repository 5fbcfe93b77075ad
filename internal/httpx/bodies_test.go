package httpx

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/runtest"
)

// One body beyond the limit of an ingest is in flight at a time: it is bigger than the share that its
// organization reserves.
func TestBodies_OneLongestAtATime(t *testing.T) {
	b := NewBodies(admission.Bodies)
	first, second := b.open(allowance.Owner{Organization: uuid.New()}), b.open(allowance.Owner{Organization: uuid.New()})
	runtest.Must(t, first.upTo(t.Context(), IngestLimit+2))
	if err := second.upTo(t.Context(), IngestLimit+1); err != nil {
		t.Fatalf("a body of an ingest is refused: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := second.upTo(short, IngestLimit+2); err == nil {
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

// The order in which a call is admitted is in limits.md.
func TestSteps_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	runtest.Must(t, err)
	var list strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&list, "%d. %s\n", i+1, s.name)
	}
	if !strings.Contains(string(text), "\n"+list.String()+"\n") {
		t.Errorf("limits.md does not list\n%s", list.String())
	}
}
