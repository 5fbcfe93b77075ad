package server

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/annals-project/annals/internal/mcptest"
	"github.com/annals-project/annals/internal/runtest"
)

const root = "../../../.."

// The service does what each revision of the protocol requires of a server, but for what the baseline names.
func TestMCP_Conformance(t *testing.T) {
	unraced(t)
	t.Parallel()
	mcptest.Suite(t, root)
	h, key := newHarness(t), ""
	proxy := mcptest.Proxy(t, func() string { return key }, func() string { return h.urls.Console })
	// The suite calls as a page of the address that it knows.
	h.set = func(c *Config) { c.MCPOrigins = proxy.URL }
	h.start()
	key, _ = h.keys()
	for _, revision := range mcptest.Revisions {
		mcptest.Server(t, root, proxy.URL+"/mcp", revision, "testdata/mcp-"+revision+".yaml")
	}
}

// A client that registered before gets a code and a token as the suite wants them. A person consents, nothing else.
func TestMCP_ConformanceOfAuthorization(t *testing.T) {
	unraced(t)
	t.Parallel()
	mcptest.Suite(t, root)
	h := newStaff(t)
	_, port, _ := strings.Cut(runtest.FreeAddress(t), ":")
	status, client := h.sendAs("", http.MethodPost, h.urls.Auth+"/oauth2/register", "application/json",
		`{"client_name":"Suite","redirect_uris":["http://127.0.0.1:`+port+`/callback"]}`)
	id, _ := client["client_id"].(string)
	if status != http.StatusCreated || id == "" {
		t.Fatalf("%d %v", status, client)
	}
	var out, problems strings.Builder
	suite := mcptest.Suite(t, root, "authorization", "--url", h.urls.Auth, "--client-id", id, "--port", port,
		"--resource", h.urls.Console+"/mcp")
	suite.Stderr = &problems
	lines, err := suite.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, suite.Start())
	consents := 0
	consent := h.consentsOf("write", &consents)
	for lines := bufio.NewScanner(lines); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), h.urls.Auth+"/oauth2/authorize?") {
			given, err := consent(t.Context(), &auth.AuthorizationArgs{URL: lines.Text()})
			runtest.Must(t, err)
			back := "http://127.0.0.1:" + port + "/callback?" + url.Values{
				"code": {given.Code}, "state": {given.State}, "iss": {given.Iss},
			}.Encode()
			runtest.Await(t, "the suite listens", func() bool { // it may print the address before
				res, err := http.Get(back)
				return err == nil && res.Body.Close() == nil
			})
		}
	}
	if err := suite.Wait(); err != nil || consents != 1 || !strings.Contains(out.String(), "✓ authorization-code-grant: 1 passed") {
		t.Errorf("%v after %d consents\n%s%s", err, consents, out.String(), problems.String())
	}
}
