package server

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// silentBodies is how many bodies do not arrive: more than an organization or an address has places of any kind.
const silentBodies = 20

// body is one that does not arrive: where, and who sends it.
type body struct {
	base, method, path string
	length             int64
	headers            []string
	// count is how many of them there are, 0 for silentBodies.
	count int
}

// While bodies of one organization do not arrive, on any route of both addresses, another organization is answered
// on every kind of route, and so is the same one.
func TestServer_BodiesThatDoNotArrive(t *testing.T) {
	t.Parallel()
	h := startConsole(t)
	service, call := h.people()
	second, err := service.CreateOrganization(t.Context(), call,
		tenancy.NewOrganization{Name: "Second", Plan: metering.Flex, OwnerEmail: "second@second.example"})
	runtest.Must(t, err)
	h.ids["second"], _, err = service.FindPerson(t.Context(), "second@second.example")
	runtest.Must(t, err)
	call.Principal.OrganizationID = second.ID
	project, err := service.CreateProject(t.Context(), call, "Second")
	runtest.Must(t, err)
	var made struct{ Key string }
	h.must(second.ManagementKey, http.MethodPost, "/api/v1/projects/"+project.Slug+"/keys", map[string]any{"name": "k"}, &made)
	own, _ := h.keys()
	neighbours := map[string]*webtest.Reader{"second": h.as("second"), "read": h.as("read")}
	check := func(b body) {
		t.Helper()
		for who, reader := range neighbours {
			key := map[string]string{"second": made.Key, "read": own}[who]
			h.answers(b, who, key, reader)
		}
	}
	h.refusesLongBodies(own)
	for _, b := range append(h.bodiesOfConsole(own), h.bodiesOfAPI()...) {
		ended := h.holdBack(b)
		check(b)
		ended()
	}
}

// answers calls each kind of route, and wants an answer.
func (h *consoleHarness) answers(b body, who, key string, reader *webtest.Reader) {
	h.t.Helper()
	defer func() {
		if h.t.Failed() {
			h.t.Logf("%s called while bodies of %s %s do not arrive", who, b.method, b.path)
		}
	}()
	h.wants(key, http.MethodPost, api+"/recall", point{"query": "tea", "identity": "walk"}, http.StatusOK, "")
	send := point{"id": "while-silent", "content": "A text."}
	h.must(key, http.MethodPost, api+"/ingest", send, nil)
	if who == "second" { // the batches of one organization are paced together
		h.must(key, http.MethodPost, api+"/ingest/batch", point{"items": []point{send}}, nil)
	}
	tools := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, c := range []struct {
		path, key, body string
		headers         []string
		want            int
	}{
		{"/mcp", key, tools, []string{"Accept", "application/json, text/event-stream"}, http.StatusOK},
		{"/oauth2/token", "", "grant_type=none", []string{"Content-Type", "application/x-www-form-urlencoded"}, 400},
		{"/agent/identity", "", `{"type":"none"}`, nil, 400},
	} {
		h.fetch(http.MethodPost, h.urls.Console+c.path, c.key, c.body, c.headers...).want(h.t, c.want)
	}
	page{reader.Ask(http.MethodPost, "/account/zone", url.Values{"zone": {"UTC"}})}.want(h.t, http.StatusSeeOther)
	h.fetch(http.MethodGet, h.urls.Console+"/sign-in", "", "").want(h.t, http.StatusOK)
}

// refusesLongBodies sends programs' calls of too many bytes: the answer is one for programs.
func (h *consoleHarness) refusesLongBodies(key string) {
	h.t.Helper()
	for path, c := range map[string]struct {
		length int
		want   string
	}{
		"/oauth2/token":    {64<<10 + 1, `"error":"invalid_request"`},
		"/oauth2/register": {64<<10 + 1, `"error":"invalid_request"`},
		"/agent/identity":  {64<<10 + 1, `"error":"invalid_request"`},
		"/mcp":             {4<<20 + 1, `"code":"content-too-large"`},
	} {
		h.fetch(http.MethodPost, h.urls.Console+path, key, strings.Repeat(" ", c.length),
			"Accept", "application/json, text/event-stream").want(h.t, http.StatusRequestEntityTooLarge, c.want)
	}
}

// bodiesOfConsole are a short body and one of the most bytes on each route of the console that has a body.
func (h *consoleHarness) bodiesOfConsole(key string) (bodies []body) {
	h.t.Helper()
	values := h.parameters()
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", h.urls.Console}
	at, err := url.Parse(h.urls.Console)
	runtest.Must(h.t, err)
	for _, cookie := range h.as("owner").HTTP.Jar.Cookies(at) {
		form = append(form, "Cookie", cookie.String())
	}
	for _, route := range h.site.Routes() {
		method, path := h.address(route.Pattern, values)
		if method != http.MethodPost {
			continue
		}
		headers := form
		if route.Public {
			headers = []string{"Content-Type", "application/json", "Authorization", "Bearer " + key}
		}
		if route.Public && strings.HasPrefix(path, "/oauth2/") {
			headers = []string{"Content-Type", "application/x-www-form-urlencoded"}
		}
		if route.Needs == web.Nothing && !route.Public {
			headers = form[:4]
		}
		bodies = append(bodies, body{h.urls.Console, method, path, 60_000, headers, 0})
		if route.Body > 64<<10 {
			bodies = append(bodies, body{h.urls.Console, method, path, route.Body, headers, 0})
		}
	}
	return bodies
}

// bodiesOfAPI are the same on each route of the contract that has a body.
func (h *consoleHarness) bodiesOfAPI() (bodies []body) {
	h.t.Helper()
	project, management := h.keys()
	for _, route := range auth.Routes() {
		row, _ := admission.RouteOf(route)
		if !row.Body {
			continue
		}
		count := 0
		if row.Lane == admission.Bulk {
			count = 1 // the others wait for room before their bodies are asked for, by the pace of their project
		}
		key, path := project, strings.NewReplacer(":identity", "plain", ":slug", "default").Replace(route.Path)
		if route.Takes(auth.ManagementKey) && !route.Takes(auth.ProjectKey) {
			key = management
		}
		bases := []string{h.urls.API}
		if route.Webhook {
			hook, err := url.Parse(h.hook.URL)
			runtest.Must(h.t, err)
			path, bases = hook.Path, []string{h.urls.API, h.urls.Console}
		}
		for _, base := range bases {
			for _, length := range []int64{60_000, 1 << 20} {
				headers := []string{"Authorization", "Bearer " + key, "Content-Type", "application/json"}
				bodies = append(bodies, body{base, route.Method, path, length, headers, count})
			}
		}
	}
	return bodies
}

// holdBack sends the heads of calls and waits until the service asks for the bodies, which do not arrive until ended is
// called. A client that expects "100 Continue" learns that by it.
func (h *consoleHarness) holdBack(b body) (ended func()) {
	h.t.Helper()
	var held []net.Conn
	asked := make(chan string, silentBodies)
	ctx, cancel := context.WithTimeout(h.t.Context(), runtest.Timeout)
	count := cmp.Or(b.count, silentBodies)
	for range count {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(b.base, "http://"))
		runtest.Must(h.t, err)
		held = append(held, conn)
		runtest.Must(h.t, conn.SetDeadline(time.Now().Add(runtest.Timeout))) // for a hang alone
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", b.method, b.path,
			b.length)
		for i := 0; i < len(b.headers); i += 2 {
			head += b.headers[i] + ": " + b.headers[i+1] + "\r\n"
		}
		_, err = io.WriteString(conn, head+"\r\n")
		runtest.Must(h.t, err)
		go func() {
			line, _ := bufio.NewReader(conn).ReadString('\n')
			asked <- line
		}()
	}
	for range count {
		if line := <-asked; !strings.Contains(line, " 100 ") {
			h.t.Errorf("%s %s of %d bytes is answered before its body: %q", b.method, b.path, b.length, line)
		}
	}
	return func() {
		for _, conn := range held {
			_ = conn.Close()
		}
		cancel()
	}
}
