package limiter_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// A decision that panics refuses its requests, and the organization can ask again.
func TestLimiter_DecisionPanics(t *testing.T) {
	l := limiter.New(nil, metering.DefaultPlanTerms(), nil, slog.New(slog.DiscardHandler)) // no database: a nil pointer
	r := metering.Reservation{
		OrganizationID: uuid.New(), ProjectID: uuid.New(), SendID: uuid.New(), Try: uuid.New(), Items: 1, At: time.Now(),
	}
	r.Limits.IngestionCap = new(int64(5))
	for range 2 {
		var f *fault.Error
		if err := l.Reserve(t.Context(), r, time.Minute); !errors.As(err, &f) || f.Code != fault.CodeServiceUnavailable {
			t.Fatalf("got %v, want %s", err, fault.CodeServiceUnavailable)
		}
	}
}
