package httpx_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/httpx"
)

func TestRequestOfEvent(t *testing.T) {
	for _, id := range []uuid.UUID{uuid.Nil, uuid.Max, uuid.MustParse("019e8a8e-1234-7abc-8def-0123456789ab")} {
		if got, ok := httpx.RequestOfEvent(httpx.EventID(id)); !ok || got != id {
			t.Errorf("%s becomes %s, %v", id, got, ok)
		}
	}
	for _, text := range []string{
		"", "evt_", "evt_0000000000000000000000000", "whk_00000000000000000000000000", "evt_ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"evt_0000000000000000000000000I",
	} {
		if _, ok := httpx.RequestOfEvent(text); ok {
			t.Errorf("%q is the id of an event", text)
		}
	}
}
