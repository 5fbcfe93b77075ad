package operatorapi

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/internal/peersocket"
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

func TestBy_PeerWithRemark(t *testing.T) {
	root := peersocket.With(t.Context(), peersocket.Peer{UID: 0})
	for says, want := range map[string]string{
		"": "operator root", "operator root": "operator root", "operator ana": "operator root (says: operator ana)",
		"a\nb\x1b[1m":            "operator root (says: ab[1m)",
		strings.Repeat("ü", 101): "operator root (says: " + strings.Repeat("ü", 100) + ")",
	} {
		if got, err := by(root, says); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", says, got, err, want)
		}
	}
	if got, err := by(peersocket.With(t.Context(), peersocket.Peer{UID: 4_000_000}), ""); err != nil ||
		got != "operator uid 4000000" {
		t.Errorf("a user without a name: %q, %v", got, err)
	}
	if got, err := by(t.Context(), "operator root"); err == nil {
		t.Errorf("without a peer it is %q", got)
	}
}

// Through a real socket the peer is the user of this process, whatever the request names.
func TestSocket_NamesItsPeer(t *testing.T) {
	dir := t.TempDir()
	l, err := peersocket.Listen(t.Context(), Socket(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(Socket(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	said := make(chan string, 1)
	route := SetAside.ServeAs(time.Now, func(
		_ context.Context, call engine.Call, _ SetAsideRequest,
	) (registry.EventSetAside, error) {
		said <- call.Principal.Name()
		return registry.EventSetAside{}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- peersocket.Serve(ctx, l, Handler(slog.New(slog.DiscardHandler), route)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := SetAside.Call(t.Context(), Dial(dir), SetAsideRequest{By: "operator somebody else"}); err != nil {
		t.Fatal(err)
	}
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := <-said, "operator "+current.Username+" (says: operator somebody else)"; got != want {
		t.Errorf("by %q, want %q", got, want)
	}
}
