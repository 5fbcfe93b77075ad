package operatorapi

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestWho_HeadersRoundTrip(t *testing.T) {
	h := http.Header{}
	who := Who{As: "Ruth Ü", Reason: "a ticket: 7 % of it"}
	WhoOf(WithWho(context.Background(), who)).setOn(h)
	if got := whoIn(h); got != who {
		t.Errorf("%+v came back as %+v", who, got)
	}
	Who{As: "a\nb", Reason: strings.Repeat("x", maxReason+1)}.setOn(h)
	if got := whoIn(h); got.As != "ab" || len(got.Reason) != maxReason {
		t.Errorf("not cleaned: %q, %d characters", got.As, len(got.Reason))
	}
	none := http.Header{}
	WhoOf(context.Background()).setOn(none)
	if len(none) > 0 || whoIn(none) != (Who{}) {
		t.Errorf("nobody is %v", none)
	}
}

// What shows texts or secrets is refused without a reason, and nothing else.
func TestRequireReason(t *testing.T) {
	served := RequireReason(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	ask := func(path, reason string) (status int, body string) {
		r, w := httptest.NewRequest(http.MethodPost, path, nil), httptest.NewRecorder()
		Who{Reason: reason}.setOn(r.Header)
		served.ServeHTTP(w, r)
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(text)
	}
	for _, path := range slices.Concat(secrets, slices.Collect(maps.Keys(texts))) {
		if status, body := ask(path, " "); status/100 != 4 || !strings.Contains(body, "--reason") {
			t.Errorf("%s without a reason: %d %s", path, status, body)
		}
		if status, _ := ask(path, "a ticket"); status != http.StatusNoContent {
			t.Errorf("%s with a reason: %d", path, status)
		}
	}
	if status, _ := ask(SetPlan.Operation.path, ""); status != http.StatusNoContent {
		t.Errorf("a change without texts is refused: %d", status)
	}
}
