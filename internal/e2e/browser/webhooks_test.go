package browser

import (
	"testing"

	"github.com/annals-project/annals/internal/webtest"
)

// TestWebhook_LiveDryRun changes a sample and then a path: what the event becomes follows without a button, each time.
func TestWebhook_LiveDryRun(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	r := webtest.NewReader(t, s.console)
	s.signIn(r)
	r.Open("/p/default/webhooks/new")
	show := r.Submit("Create", map[string]string{"Name": "Tickets", "Content path": "$.text"}).URL.Path
	p := newPerson(t, s.console)
	s.signInAs(p, s.credentials[ownerEmail], s.credentials[ownerPassword])
	p.open(show)
	p.fill("Sample", `{"text":"live marigold","kind":"note"}`)
	p.see("Content live marigold")
	p.fill("Content path", `$.kind`)
	p.see("Content note")
	p.accessible()
}
