package authserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// hosts are answers by the address of a document.
type hosts map[string]func(http.ResponseWriter)

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	write := h[r.URL.String()]
	if write == nil {
		return nil, http.ErrServerClosed
	}
	w := httptest.NewRecorder()
	write(w)
	return w.Result(), nil
}

func TestDocuments_OfClients(t *testing.T) {
	const good = "https://client.example/oauth/client.json"
	reads := 0
	doc := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { reads++; _, _ = w.Write([]byte(text)) }
	}
	web := hosts{
		good:                            doc(`{"client_id":"` + good + `","client_name":"Doc","redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"none"}`),
		"https://client.example/other":  doc(`{"client_id":"` + good + `","redirect_uris":["` + callback + `"]}`),
		"https://client.example/long":   doc(strings.Repeat(" ", maxDocument+1)),
		"https://client.example/html":   doc("<html>"),
		"https://client.example/none":   doc(`{"client_id":"https://client.example/none"}`),
		"https://client.example/secret": doc(`{"client_id":"https://client.example/secret","redirect_uris":["` + callback + `"],"token_endpoint_auth_method":"client_secret_post"}`),
		"https://client.example/scheme": doc(`{"client_id":"https://client.example/scheme","redirect_uris":["` + callback + `","search-ms:x"]}`),
		"https://client.example/moved": func(w http.ResponseWriter) {
			w.Header().Set("Location", good)
			w.WriteHeader(http.StatusFound)
		},
	}
	s := newScene(t, func(c *Config) { c.Documents, c.Fetch = Documents{On: true}, web })
	opens := func(client string) page {
		return s.send(http.MethodGet, "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	}
	s.send(http.MethodGet, "/oauth2/consent?"+asks(good).Encode(), uuid.Nil, "", "")
	if reads > 0 {
		t.Error("a document is read for somebody who is not signed in")
	}
	for range 2 {
		if got := opens(good); got.status != 200 || !strings.Contains(got.body, "<strong>Doc</strong>") || reads != 1 {
			t.Errorf("%d after %d reads: %s", got.status, reads, got.body)
		}
	}
	s.tokens(s.redeems(good, s.code(s.ana, good)))
	for _, client := range []string{
		"https://client.example/other", "https://client.example/long", "https://client.example/html", "https://client.example/none",
		"https://client.example/secret", "https://client.example/moved", "https://client.example/down", "https://client.example/scheme",
		"http://client.example/oauth/client.json", "https://client.example", "https://client.example/", "https://client.example:8443/x",
		"https://client.example/a/../b", "https://client.example/x#y", "https://client.example/x?y", "https://u:p@client.example/x",
		"https://CLIENT.example/x", "https://client.example/" + strings.Repeat("x", maxClientID), "file:///etc/passwd",
	} {
		if got := opens(client); got.status != http.StatusBadRequest || got.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", client, got.status, got.header.Get("Location"))
		}
	}
	s.Documents.Hosts = []string{"claude.ai"}
	if got := opens(good); got.status != http.StatusBadRequest {
		t.Errorf("of a host that is not listed: %d", got.status)
	}
}

// A document is read from public addresses alone, whatever its name resolves to.
func TestDocuments_OfPrivateAddresses(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
		"192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"::127.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0::1",
		"fec0::1",
	} {
		if isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s counts as public", address)
		}
	}
	for _, address := range []string{"93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"} {
		if !isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s does not count as public", address)
		}
	}
	asked := false
	private := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer private.Close()
	for _, at := range []string{private.URL, strings.Replace(private.URL, "127.0.0.1", "localhost", 1)} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/doc", nil)
		runtest.Must(t, err)
		res, err := publicTransport().RoundTrip(req)
		if err == nil {
			_ = res.Body.Close() // the test fails
		}
		if err == nil || !strings.Contains(err.Error(), "not public") || asked {
			t.Errorf("%s was reached: %v", at, err)
		}
	}
}

func TestParseDocuments(t *testing.T) {
	for setting, want := range map[string]string{
		"": "{false []}", "off": "{false []}", "on": "{true []}", "claude.ai, VSCode.dev": "{true [claude.ai vscode.dev]}",
	} {
		if got, err := ParseDocuments(setting); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v %v", setting, got, err)
		}
	}
	for _, setting := range []string{"yes please", "https://claude.ai", "claude.ai/x", "a:443", "claude.ai,,x"} {
		if _, err := ParseDocuments(setting); err == nil {
			t.Errorf("%q is taken", setting)
		}
	}
}
