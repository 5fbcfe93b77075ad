package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/mcptest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// oneKey is a project whose key is every key.
type oneKey struct{ auth.Keys }

func (oneKey) KeyByHash(context.Context, auth.Kind, [32]byte) (auth.Holder, bool, error) {
	return auth.Holder{Principal: auth.Principal{Kind: auth.ProjectKey, KeyID: uuid.New()}}, true, nil
}

// The transport and what stands before it do what each revision of the protocol requires, with the tools, prompts and
// resources that the suite wants a server to have.
func TestConformance(t *testing.T) {
	const root = "../.."
	mcptest.Suite(t, root)
	document, err := os.ReadFile("../../readapi/openapi.yaml")
	runtest.Must(t, err)
	key := secret.ProjectKeyPrefix + strings.Repeat("k", 40)
	at := ""
	proxy := mcptest.Proxy(t, func() string { return key }, func() string { return at })
	s, err := New(Config{
		URLs: auth.URLs{API: proxy.URL, Console: proxy.URL, Auth: proxy.URL}, Version: "1", Document: document,
		Keys: oneKey{}, Logger: runtest.Warnings(t),
	})
	runtest.Must(t, err)
	addFixtures(s.servers[view{auth.MCPPath, true, true, named}])
	site, err := web.New(web.Config{
		URL: proxy.URL, Cookies: web.NewCookies("http:", uuid.Nil), Admit: func() error { return nil },
		Logger: runtest.Warnings(t), Now: time.Now,
	}, []web.Area{s.Area()})
	runtest.Must(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := site.Serve(w, r, &httpx.PageNote{}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	at = server.URL
	for _, revision := range mcptest.Revisions {
		mcptest.Server(t, root, proxy.URL+"/mcp", revision, "testdata/conformance-"+revision+".yaml")
	}
}
