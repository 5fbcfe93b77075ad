package recall_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/projections/recall"
)

// FuzzQuery reads any body as a recall: what is accepted keeps every limit, and what is refused
// is a fault of the caller.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		`{"query":"tea","identity":"ana"}`, `{"query":"tea","identity":"ana","limit":1e2,"maxTokens":1e999,"sort":"chronological"}`,
		`{"query":"tea","identity":"ana","level":"high","occurredFrom":"2026-W01-1","occurredTo":"2026-002"}`, `{"query":7,"identity":"ana","sort":"x"}`,
		`{"query":"tea","identity":"ana","limit":-0,"maxTokens":-0.0}`, `{"query":"\u2003","identity":"\u0000"}`, `[]`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if rawjson.Check(body) != nil {
			return
		}
		q, err := recall.ParseQuery(body)
		if err != nil {
			if told, ok := errors.AsType[*fault.Error](err); !ok || told.Kind != fault.Invalid || told.Msg == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		identity := utf8.RuneCountInString(q.Identity)
		switch {
		case strings.TrimSpace(q.Text) == "", strings.TrimSpace(q.Identity) == "", identity > 200,
			strings.ContainsRune(q.Identity, 0):
			t.Fatalf("query %q of %q", q.Text, q.Identity)
		case q.Limit < 1, q.Limit > 200, q.Budget < 1, q.Budget > 32000:
			t.Fatalf("limit %d, budget %d", q.Limit, q.Budget)
		case q.From != nil && q.To != nil && q.From.After(*q.To):
			t.Fatalf("from %s to %s", q.From, q.To)
		case len(q.Audiences) != 0: // what the identity reaches is found where it is searched
			t.Fatalf("audiences %v", q.Audiences)
		}
	})
}

// The days that a query names are those of the zone of queryTimestamp.
func TestParseQuery_ZoneOfQueryTimestamp(t *testing.T) {
	for text, offset := range map[string]int{
		"2025-05-12T23:30:00-07:00": -7 * 3600, "2025-05-12T23:30:00+05:45": 5*3600 + 45*60,
		"2025-05-12T23:30:00Z": 0, "2025-05-12T23:30": 0, "2025-05-12": 0,
	} {
		q, err := recall.ParseQuery([]byte(`{"query":"tea","identity":"ana","queryTimestamp":"` + text + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := q.At.Zone(); got != offset || q.At.Day() != 12 {
			t.Errorf("%s: read as %s", text, q.At)
		}
	}
}
