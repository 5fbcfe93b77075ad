package project_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/webhook"
)

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"Support desk":        "support-desk",
		"  R&D -- 2026!  ":    "r-d-2026",
		"Überraschung":        "berraschung",
		"日本語":                 "project",
		"a":                   "a",
		"Already-Dashed_Name": "already-dashed-name",
	} {
		if got := project.Slug(name); got != want {
			t.Errorf("Slug(%q) = %q, want %q", name, got, want)
		}
	}
	taken := map[string]bool{"support-desk": true, "support-desk-2": true}
	if got := project.FreeSlug("Support Desk", func(s string) bool { return taken[s] }); got != "support-desk-3" {
		t.Errorf("a taken slug became %q", got)
	}
}

func TestName_Valid(t *testing.T) {
	for name, want := range map[string]bool{
		"ab": true, "a": false, "a!": false, "é1": true, "": false, "--": false,
		strings.Repeat("é", 255): true, strings.Repeat("é", 256): false, "a\x00b": false,
	} {
		if got := project.ValidName(name); got != want {
			t.Errorf("ValidName(%.20q) = %v", name, got)
		}
	}
}

func TestState_SetReads(t *testing.T) {
	set := func(mode project.ReadsMode, days int) *project.ReadsSet {
		return &project.ReadsSet{ProjectID: id, Mode: mode, Days: days, SetAt: at}
	}
	kept := set(project.ReadsKept, 365)
	for name, c := range map[string]struct {
		given []event.Event
		when  project.Reads
		then  []event.Event
		bad   bool
	}{
		"on":                       {nil, project.Reads{Mode: project.ReadsKept, Days: 365}, []event.Event{kept}, false},
		"what a new project has":   {nil, project.Reads{Mode: project.ReadsOff, Days: 365}, nil, false},
		"again":                    {[]event.Event{kept}, project.Reads{Mode: project.ReadsKept, Days: 365}, nil, false},
		"the least time":           {[]event.Event{kept}, project.Reads{Mode: project.ReadsKept, Days: 30}, []event.Event{set(project.ReadsKept, 30)}, false},
		"the most time":            {nil, project.Reads{Mode: project.ReadsOff, Days: 3650}, []event.Event{set(project.ReadsOff, 3650)}, false},
		"off":                      {[]event.Event{kept}, project.Reads{Mode: project.ReadsOff, Days: 365}, []event.Event{set(project.ReadsOff, 365)}, false},
		"too short":                {nil, project.Reads{Mode: project.ReadsKept, Days: 29}, nil, true},
		"too long":                 {nil, project.Reads{Mode: project.ReadsKept, Days: 3651}, nil, true},
		"a mode that is not known": {nil, project.Reads{Mode: "proven", Days: 365}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := given(c.given...).SetReads(id, c.when, at)
			f, _ := errors.AsType[*fault.Error](err)
			if (f != nil && f.Code == fault.CodeInvalidRequest) != c.bad || (err != nil) != c.bad {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(c.then, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

var (
	id       = uuid.MustParse("5d5ab3a4-3b3f-4f04-9a35-1c1b2f6d9a10")
	token    = uuid.MustParse("5d5ab3a4-3b3f-4f04-9a35-1c1b2f6d9a11")
	rotated  = uuid.MustParse("5d5ab3a4-3b3f-4f04-9a35-1c1b2f6d9a12")
	at       = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	settings = webhook.Settings{Name: "Tickets", ContentPath: "$.text"}
)

func created(name string) *project.WebhookCreated {
	return &project.WebhookCreated{ProjectID: id, WebhookID: name, TokenID: token, Settings: settings, CreatedAt: at}
}

func given(events ...event.Event) (s project.State) {
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

func TestState_Webhooks(t *testing.T) {
	other := webhook.Settings{Name: "Mail", ContentPath: "$"}
	s := given(
		created("a"), created("b"), created("c"),
		&project.WebhookChanged{ProjectID: id, WebhookID: "a", Settings: other, ChangedAt: at},
		&project.WebhookPaused{ProjectID: id, WebhookID: "a", PausedAt: at},
		&project.WebhookTokenRotated{ProjectID: id, WebhookID: "a", TokenID: rotated, RotatedAt: at},
		&project.WebhookPaused{ProjectID: id, WebhookID: "b", PausedAt: at},
		&project.WebhookResumed{ProjectID: id, WebhookID: "b", ResumedAt: at},
		&project.WebhookDeleted{ProjectID: id, WebhookID: "c", DeletedAt: at},
	)
	want := map[string]project.Webhook{
		"a": {TokenID: rotated, Settings: other, Paused: true},
		"b": {TokenID: token, Settings: settings},
	}
	if diff := cmp.Diff(want, s.Webhooks); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}

func TestState_WebhookDecisions(t *testing.T) {
	many := func(n int) (events []event.Event) {
		for i := range n {
			events = append(events, created(fmt.Sprint(i)))
		}
		return events
	}
	paused := &project.WebhookPaused{ProjectID: id, WebhookID: "0", PausedAt: at}
	create := func(s project.State) ([]event.Event, error) { return s.CreateWebhook(*created("new")) }
	pause := func(is bool) func(project.State) ([]event.Event, error) {
		return func(s project.State) ([]event.Event, error) { return s.SetWebhookPaused(id, "0", is, at) }
	}
	for name, c := range map[string]struct {
		given []event.Event
		when  func(project.State) ([]event.Event, error)
		then  []event.Event
		code  string
	}{
		"the first":       {nil, create, []event.Event{created("new")}, ""},
		"the last":        {many(limit.Webhooks - 1), create, []event.Event{created("new")}, ""},
		"one too many":    {many(limit.Webhooks), create, nil, fault.CodeInvalidRequest},
		"after a deleted": {append(many(limit.Webhooks), &project.WebhookDeleted{WebhookID: "3"}), create, []event.Event{created("new")}, ""},
		"pause":           {many(1), pause(true), []event.Event{paused}, ""},
		"pause again":     {append(many(1), paused), pause(true), nil, ""},
		"resume": {
			append(many(1), paused), pause(false),
			[]event.Event{&project.WebhookResumed{ProjectID: id, WebhookID: "0", ResumedAt: at}},
			"",
		},
		"resume again":     {many(1), pause(false), nil, ""},
		"pause of unknown": {nil, pause(true), nil, fault.CodeNotFound},
		"pause of deleted": {append(many(1), &project.WebhookDeleted{WebhookID: "0"}), pause(true), nil, fault.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.when(given(c.given...))
			f, _ := errors.AsType[*fault.Error](err)
			if (err != nil) != (c.code != "") || f != nil && f.Code != c.code {
				t.Fatalf("error %v, want %q", err, c.code)
			}
			if diff := cmp.Diff(c.then, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
