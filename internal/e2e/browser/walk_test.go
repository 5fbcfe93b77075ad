package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
)

// walk is what the Owner of a new service does on the first day. It returns the link for a person who may only read.
func (s *service) walk(v visitor) (invitation string) {
	s.t.Helper()
	v.open("/")
	v.fill("E-mail", s.Credentials[ownerEmail])
	v.fill("Password", s.Credentials[ownerPassword])
	v.button("Sign in")

	v.fill("Name", "Walk")
	v.button("Create project")
	v.link("Keys")
	v.fill("Name", "assistant")
	v.button("Create key")
	key := v.grab(".notice code")
	if !strings.HasPrefix(key, "svc_sk_") {
		s.t.Fatalf("the page shows the key %.8s…", key)
	}
	v.link("Keys")
	v.see("assistant")
	v.lacks(key)
	c, err := client.New(s.API, key)
	runtest.Must(s.t, err)
	_, err = c.PutIdentity(s.t.Context(), client.IdentityRow{Identity: "ana", Traits: map[string]string{"team": "launch"}})
	runtest.Must(s.t, err)

	s.sendAndRecall(v)
	s.move(v)
	s.shareAndReceive(v)

	v.link("Data points")
	v.link("plan")
	v.link("Correct")
	v.fill("Text", "Ana moved the launch to 10 June 2025.")
	v.button("Save a new revision")
	v.seeLater("10 June 2025")
	v.link("Delete")
	v.button("Delete it")
	v.see("Deleted.")
	v.lacks("Launch plan")

	v.link("Members")
	v.fill("E-mail address", "rea@acme.example")
	v.fill("Role", "member")
	v.fill("walk", "read")
	v.button("Invite")
	return v.grab(".notice code")
}

// sendAndRecall sends a text, recalls it, and follows the memory to its source in the graph.
func (s *service) sendAndRecall(v visitor) {
	s.t.Helper()
	v.link("Ingest")
	v.fill("Text", "Ana moved the launch to 3 June 2025. Never deploy on Fridays.")
	v.fill("Id", "plan")
	v.fill("Label", "Launch plan")
	v.fill("Author", "ana")
	v.button("Estimate")
	v.see("1 data point")
	v.button("Send")
	v.seeLater("indexed")
	v.link("Recall")
	v.fill("Question", "When is the launch?")
	v.fill("As identity", "ana")
	v.button("Recall")
	v.see("The launch is on 3 June 2025")
	v.link("Open in trace", "1. claim")
	v.link("Lineage")
	v.link("Launch plan")
	v.see("plan, revision 1")
	v.see("Never deploy on Fridays")
}

// move exports what was sent, and imports it again: nothing of it is new.
func (s *service) move(v visitor) {
	s.t.Helper()
	v.link("Export")
	lines := v.download("Data points")
	if !strings.Contains(lines, "Never deploy on Fridays") {
		s.t.Fatalf("the export is %.200q", lines)
	}
	v.link("Import")
	for _, button := range []string{"Estimate", "Send"} {
		v.attach("Files", "points.jsonl", lines)
		v.tick("one file of data points")
		v.button(button)
	}
	v.see("1 of them unchanged")
	v.see("That is all of it.")
}

// shareAndReceive makes an audience and sees who reaches it, and a webhook that receives an event.
func (s *service) shareAndReceive(v visitor) {
	s.t.Helper()
	v.link("Audiences")
	v.link("New rule")
	v.fill("Slug", "launch")
	v.fill("Trait", "team")
	v.fill("Values", "launch")
	v.button("Preview")
	v.see("It reaches 1 of")
	v.button("Save")
	v.see("ana")
	v.link("Webhooks")
	v.link("New webhook")
	v.fill("Name", "Tickets")
	v.fill("Content path", "$.text")
	v.fill("Id path", "$.id")
	v.button("Create")
	s.event(v.grab(".copy code"), `{"id":"T-1","text":"The export button does nothing in Firefox."}`)
	v.link("all events")
	v.seeLater("T-1")
	v.link("T-1")
	v.see("The export button does nothing")
	v.link("Requests")
	v.seeLater("/api/v1/webhooks/")
}

// read is what somebody does who was invited to read: the keys are closed to them.
func (s *service) read(v visitor, invitation string) {
	s.t.Helper()
	v.open(invitation)
	v.fill("New password", "correct horse battery")
	v.see("offers you a membership")
	v.button("Set the password and accept")
	v.open("/")
	v.link("walk")
	v.lacks("Keys")
	v.link("Data points")
	v.see("T-1")
	v.open("/p/walk/keys")
	v.answered(http.StatusForbidden)
	v.open("/p/default")
	v.answered(http.StatusNotFound)
}

// answerOffers is what the Owner does with offers of another organization.
func (s *service) answerOffers(v visitor) {
	s.t.Helper()
	second := s.secondOwner()
	for _, button := range []string{"Decline", "Accept"} {
		second.Open("/settings/members")
		second.Submit("Invite", map[string]string{"E-mail address": s.Credentials[ownerEmail], "Role": "admin"})
		second.See("The membership is offered")
		v.open("/offers")
		v.see("Second")
		v.button(button)
	}
	v.see("Second")
	v.open("/offers")
	v.see("There is no open offer")
}

// secondOwner is signed in as the Owner of another organization.
func (s *service) secondOwner() *plainReader {
	s.t.Helper()
	const email = "second@acme.example"
	s.Annals("org", "create", "Second", "--owner-email", email)
	link, _, _ := strings.Cut(s.Annals("person", "link", email), "\n")
	r := newPlainReader(s)
	r.open(link)
	r.fill("New password", "correct horse battery")
	r.button("Set the password and sign in")
	r.answered(http.StatusOK)
	return r
}

func TestWalk_WithoutScripts(t *testing.T) {
	t.Parallel()
	s := start(t)
	owner := newPlainReader(s)
	invitation := s.walk(owner)
	s.read(newPlainReader(s), invitation)
	s.answerOffers(owner)
}

func TestWalk_InABrowser(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	owner := newPerson(t, s.Console)
	invitation := s.walk(owner)
	t.Logf("the first day takes %d clicks and %d fields", owner.clicks, owner.fields)
	s.read(newPerson(t, s.Console), invitation)
	s.answerOffers(owner)
}

// TestWalk_AStranger has somebody who knows no command and no document finish five tasks, and counts the clicks.
func TestWalk_AStranger(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	s.furnish()
	p := newPerson(t, s.Console)
	s.signInAs(p, s.Credentials[ownerEmail], s.Credentials[ownerPassword])
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

// TestWebhook_LiveDryRun changes a sample and then a path: what the event becomes follows without a button, each time.
func TestWebhook_LiveDryRun(t *testing.T) {
	t.Parallel()
	needBrowser(t)
	s := start(t)
	r := webtest.NewReader(t, s.Console)
	s.signIn(r)
	r.Open("/p/default/webhooks/new")
	show := r.Submit("Create", map[string]string{"Name": "Tickets", "Content path": "$.text"}).URL.Path
	p := newPerson(t, s.Console)
	s.signInAs(p, s.Credentials[ownerEmail], s.Credentials[ownerPassword])
	p.open(show)
	p.fill("Sample", `{"text":"live marigold","kind":"note"}`)
	p.see("Content live marigold")
	p.fill("Content path", `$.kind`)
	p.see("Content note")
	p.accessible()
}
