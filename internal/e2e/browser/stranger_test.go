package browser

import (
	"fmt"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// TestWalk_AStranger has somebody who knows no command and no document finish five tasks, and counts the clicks.
func TestWalk_AStranger(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	s.furnish()
	p := newPerson(t, s.console)
	s.signInAs(p, s.credentials[ownerEmail], s.credentials[ownerPassword])
	for _, task := range []struct {
		name string
		do   func()
	}{
		{"why did Ben not see the budget", func() {
			p.link("default")
			p.link("Who sees what")
			p.fill("Identity", "ben")
			p.fill("Id of the data point", "budget")
			p.button("Explain")
			p.see("ben may not read budget")
			p.see("team")
		}},
		{"who reads the audience launch, and since when", func() {
			p.link("default")
			p.link("Audiences")
			p.link("launch")
			p.see("Member since")
			p.see("ana")
			p.see("dev")
			p.lacks("chloe")
		}},
		{"what did last week cost, and which key caused it", func() {
			p.link("Usage")
			p.link("Last week")
			p.see("No call was made in these days.")
			p.link("This week")
			p.see("Which key caused it")
			calls := fmt.Sprint(s.callsWith("default"))
			if key := p.grab("#keys ~ .scroll tbody tr:first-child td:first-child a"); key != "default" {
				t.Errorf("the key with most calls is %q", key)
			}
			if shown := p.grab("#keys ~ .scroll tbody tr:first-child td:last-child"); shown != calls {
				t.Errorf("the key made %s calls, the page shows %q", calls, shown)
			}
		}},
		{"a mapping that failed is mended, and its events are replayed", func() {
			p.link("default")
			p.link("Webhooks")
			p.link("Issues")
			p.fill("Content path", "$.issue")
			p.button("Save")
			p.link("dropped")
			p.link("UTC", "content path")
			p.button("Replay")
			p.seeLater("ingested")
		}},
		{"a leaked key is replaced", func() {
			p.link("default")
			p.link("Keys")
			p.link("default")
			p.button("Create the replacement")
			if key := p.grab(".notice code"); len(key) < 20 {
				t.Errorf("the new key is %q", key)
			}
			p.link("see whether the old one is still used")
			p.tick("Refuse all calls with this key")
			p.button("Revoke the key")
			p.see("revoked")
		}},
	} {
		p.open("/")
		p.clicks, p.fields = 0, 0
		task.do()
		t.Logf("%s: %d clicks, %d fields", task.name, p.clicks, p.fields)
	}
}

// callsWith counts the calls of a day with a key, as the API lists them.
func (s *service) callsWith(key string) int {
	s.t.Helper()
	list, err := s.client("ANNALS_PROJECT_KEY").ListRequests(s.t.Context(), client.ListRequestsRequest{
		RequestFilter: client.RequestFilter{KeyName: []string{key}},
	})
	runtest.Must(s.t, err)
	return list.TotalCount
}
