package commands_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/tenants"
)

// withWebhooks returns a fixture whose call is of the first project, and the vault that holds tokens.
func withWebhooks(t *testing.T) (*fixture, *vault) {
	t.Helper()
	w, a := metered(t)
	v := &vault{kept: map[uuid.UUID]string{}}
	w.Service = commands.New(commands.Config{
		Journal: w.log, Waiter: noWait{}, Accounts: a, Vault: v, Directory: logDirectory{w.log},
	})
	state := w.registry()
	p, ok := state.Project(w.call.Principal.OrganizationID, "default")
	if !ok {
		t.Fatal("there is no first project")
	}
	w.call.Principal.Project.ID = p.ProjectID
	return w, v
}

func (w *fixture) createWebhook(s webhook.Settings) tenancy.WebhookReceipt {
	w.t.Helper()
	receipt, err := w.CreateWebhook(w.t.Context(), w.call, s)
	runtest.Must(w.t, err)
	return receipt
}

var anyText = webhook.Settings{Name: "Tickets", ContentPath: "$.text"}

func TestCreateWebhook_TwentyAProject(t *testing.T) {
	w, v := withWebhooks(t)
	var first tenancy.WebhookReceipt
	for n := range limit.Webhooks {
		made := w.createWebhook(anyText)
		if n == 0 {
			first = made
		}
	}
	before := w.projectTypes("default")
	wantFault(t, errorOf(w.CreateWebhook(t.Context(), w.call, anyText)), "invalid-request")
	wantTypes(t, w.projectTypes("default"), before...)
	runtest.Must(t, w.DeleteWebhook(t.Context(), w.call, first.ID))
	w.createWebhook(anyText)
	wantFault(t, errorOf(w.CreateWebhook(t.Context(), w.call, anyText)), "invalid-request")
	if v.kept[first.TokenID] != "" {
		t.Error("the token of a deleted webhook is kept")
	}
}

// The vault has the token that works, and no other. If it fails, nothing is created or rotated; what takes a
// token away does not depend on it.
func TestWebhook_TokensInTheVault(t *testing.T) {
	w, v := withWebhooks(t)
	made := w.createWebhook(anyText)
	if len(made.Token) != 32 || v.kept[made.TokenID] != made.Token || len(v.kept) != 1 {
		t.Fatalf("kept %v of %+v", v.kept, made)
	}
	rotated, err := w.RotateWebhookToken(t.Context(), w.call, made.ID)
	if err != nil || rotated.ID != made.ID || rotated.Token == made.Token || v.kept[rotated.TokenID] != rotated.Token ||
		len(v.kept) != 1 {
		t.Fatalf("kept %v of %+v, %v", v.kept, rotated, err)
	}
	v.fails = errors.New("no answer")
	before := w.projectTypes("default")
	wantFault(t, errorOf(w.CreateWebhook(t.Context(), w.call, anyText)), "service-unavailable")
	wantFault(t, errorOf(w.RotateWebhookToken(t.Context(), w.call, made.ID)), "service-unavailable")
	wantTypes(t, w.projectTypes("default"), before...)
	if err := w.DeleteWebhook(t.Context(), w.call, made.ID); err != nil {
		t.Error(err)
	}
}

func TestWebhook_WrongSettings(t *testing.T) {
	w, v := withWebhooks(t)
	made := w.createWebhook(anyText)
	before := w.projectTypes("default")
	for name, c := range map[string]struct {
		settings webhook.Settings
		code     string
	}{
		"no path":          {webhook.Settings{Name: "a"}, "invalid-request"},
		"a long name":      {webhook.Settings{Name: strings.Repeat("é", limit.WebhookName+1), ContentPath: "$"}, "invalid-request"},
		"unknown audience": {webhook.Settings{Name: "a", ContentPath: "$", Audience: "none-such"}, "audience-unknown"},
	} {
		wantFault(t, errorOf(w.CreateWebhook(t.Context(), w.call, c.settings)), c.code)
		wantFault(t, w.ChangeWebhook(t.Context(), w.call, made.ID, c.settings), c.code)
		if t.Failed() {
			t.Fatalf("with %s", name)
		}
	}
	wantTypes(t, w.projectTypes("default"), before...)
	if len(v.kept) != 1 {
		t.Errorf("%d tokens are kept", len(v.kept))
	}
}

func TestWebhook_Unknown(t *testing.T) {
	w, v := withWebhooks(t)
	made := w.createWebhook(anyText)
	other := w.call
	other.Principal.Project.ID = uuid.New() // a neighbour's
	for _, c := range []struct {
		call engine.Call
		id   string
	}{{w.call, "whk_unknown"}, {other, made.ID}} {
		wantFault(t, w.ChangeWebhook(t.Context(), c.call, c.id, anyText), "not-found")
		wantFault(t, w.SetWebhookPaused(t.Context(), c.call, c.id, true), "not-found")
		wantFault(t, w.DeleteWebhook(t.Context(), c.call, c.id), "not-found")
		wantFault(t, errorOf(w.RotateWebhookToken(t.Context(), c.call, c.id)), "not-found")
	}
	if v.kept[made.TokenID] != made.Token {
		t.Error("the token is gone")
	}
}

func TestTryEvent_WhatItWouldBecome(t *testing.T) {
	w, _ := withWebhooks(t)
	before := w.projectTypes("default")
	exists, err := webhook.ParseFilter("$.text exists")
	runtest.Must(t, err)
	settings := webhook.Settings{Name: "Tickets", ContentPath: "$.text", IDPath: "$.id", Filters: []webhook.Filter{exists}}
	for body, want := range map[string]tenants.TriedEvent{
		`{"text":"Tea.","id":7}`: {Verdict: "ingested", Content: "Tea.", ID: "7", Credits: new(json.Number("1.1"))},
		`{}`:                     {Verdict: "dropped", DroppedBy: new("$.text exists"), Credits: new(json.Number("0.1"))},
		`x`:                      {Verdict: "dropped", DroppedBy: new("$.text exists"), Credits: new(json.Number("0.1"))},
	} {
		want.Filters = []tenants.TriedFilter{{Filter: "$.text exists", Matches: want.DroppedBy == nil}}
		for _, metered := range []bool{true, false} {
			call := w.call
			if call.Principal.Limits.Plan = metering.PayAsYouGo; !metered {
				call.Principal.Limits.Plan, want.Credits = metering.SelfHosted, nil
			}
			got, err := w.TryEvent(t.Context(), call, settings, []byte(body))
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s, metered %v: %v (-want +got)\n%s", body, metered, err, diff)
			}
		}
	}
	settings.Audience = "nobody"
	if got, err := w.TryEvent(t.Context(), w.call, settings, []byte(`{"text":"Tea."}`)); err != nil || got.Refused == "" {
		t.Errorf("for an audience that is not there: %+v, %v", got, err)
	}
	_, err = w.TryEvent(t.Context(), w.call, settings, make([]byte, limit.WebhookBody+1))
	wantFault(t, err, "webhook-body-too-large")
	wantTypes(t, w.projectTypes("default"), before...)
}
