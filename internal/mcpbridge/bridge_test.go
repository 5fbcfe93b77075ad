package mcpbridge_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/mcpbridge"
	"github.com/annals-project/annals/internal/mcpguard"
	"github.com/annals-project/annals/internal/runtest"
)

// A line that is no message is answered, and the next one is carried. What the service refuses is passed on as it is.
func TestBridge_BadLines(t *testing.T) {
	service := httptest.NewServer(mcpguard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		runtest.Must(t, json.NewDecoder(r.Body).Decode(&m))
		if got := r.Header.Get("X-Service-Identity"); got != "ana" {
			t.Errorf("the call is bound to %q", got)
		}
		_, err := w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}`))
		runtest.Must(t, err)
	})))
	defer service.Close()
	for name, c := range map[string]struct{ in, want string }{
		"a header and a call": {
			"Content-Length: 40\r\n\r\n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700|{"jsonrpc":"2.0","id":1,"result":{}}`,
		},
		"a line that is too long": {
			strings.Repeat("x", 5<<20) + "\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}` + "\n",
			`"code":-32700|{"jsonrpc":"2.0","id":2,"result":{}}`,
		},
		"an unknown method": {
			`{"jsonrpc":"2.0","id":3,"method":"no/such"}` + "\n", `{"jsonrpc":"2.0","id":3,"error":{"code":-32601`,
		},
		"a list, null as id and a notification": {
			"[]\n" + `{"jsonrpc":"2.0","id":null,"method":"ping"}` + "\n" + `{"jsonrpc":"2.0","method":"no/such"}` + "\n",
			`"code":-32600|"code":-32600`,
		},
		"parameters of another type": {
			`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[5]}` + "\n",
			`{"jsonrpc":"2.0","id":4,"error":{"code":-32602`,
		},
	} {
		var out strings.Builder
		bridge := mcpbridge.Bridge{URL: service.URL, Key: "svc_sk_1", Identity: "ana", HTTP: service.Client()}
		runtest.Must(t, bridge.Run(t.Context(), strings.NewReader(c.in), &out))
		lines, want := strings.Split(strings.TrimSpace(out.String()), "\n"), strings.Split(c.want, "|")
		if len(lines) != len(want) {
			t.Errorf("%s: %q", name, lines)
			continue
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s: %q is answered", name, lines[i])
			}
		}
	}
}
