package commands_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/tenants"
)

// oneTenant finds one organization with the project "default", or what it created.
type oneTenant struct {
	id   uuid.UUID
	keys []tenants.Key
}

func (o *oneTenant) Organization(_ context.Context, name string) (out tenants.ListedOrganization, err error) {
	if out.ID, out.Name = o.id, "Annals"; name != "" && name != out.Name {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no organization %q", name)
	}
	return out, err
}

func (o *oneTenant) Project(ctx context.Context, organization, slug string) (p tenants.ListedProject, err error) {
	_, err = o.Organization(ctx, organization)
	p.Slug, p.OrganizationID = slug, o.id
	return p, err
}

func (o *oneTenant) Key(
	ctx context.Context, organization, slug, id string,
) (p tenants.ListedProject, k tenants.Key, err error) {
	p, err = o.Project(ctx, organization, slug)
	for _, k := range o.keys {
		if k.ID == id {
			return p, k, err
		}
	}
	return p, k, fault.New(fault.NotFound, fault.CodeNotFound, "no such key")
}

// neverVisible is a waiter for projections that do not catch up.
type neverVisible struct{}

func (neverVisible) Wait(context.Context, eventstore.Position, ...string) error {
	return errors.New("late")
}

func TestTenancy_ProjectsAndKeys(t *testing.T) {
	w, _ := metered(t)
	found := &oneTenant{id: w.call.Principal.OrganizationID}
	w.call.Principal.OrganizationID = uuid.Nil // the caller is of none
	for name, waiter := range map[string]commands.Waiter{"visible": noWait{}, "late": neverVisible{}} {
		of := commands.Tenancy{Tenants: found, Service: commands.New(commands.Config{Journal: w.log, Waiter: waiter})}
		late := name == "late"
		made, err := of.CreateProject(t.Context(), w.call, "", name)
		if err != nil || made.Slug != name || made.Organization != "Annals" || made.OrganizationID != found.id {
			t.Fatalf("%s: project %+v, %v", name, made, err)
		}
		k, err := of.CreateKey(t.Context(), w.call, "Annals", made.Slug, "app")
		if err != nil || k.Key == "" || k.Project != made.Slug || (k.Warning != "") != late {
			t.Fatalf("%s: key %+v, %v", name, k, err)
		}
		found.keys = append(found.keys, k)
		revoked, err := of.RevokeKey(t.Context(), w.call, "", made.Slug, k.ID)
		if err != nil || revoked.RevokedAt == nil || (revoked.Warning != "") != late {
			t.Errorf("%s: revoked %+v, %v", name, revoked, err)
		}
		if _, err := of.RevokeKey(t.Context(), w.call, "", made.Slug, k.ID); err == nil && !late {
			t.Errorf("%s: a revoked key is revoked again", name)
		}
	}
}

func TestTenancy_Refusals(t *testing.T) {
	w, _ := metered(t)
	of := commands.Tenancy{Tenants: &oneTenant{id: w.call.Principal.OrganizationID}, Service: w.Service}
	before := len(w.projectTypes("default"))
	for name, key := range map[string]string{"empty": "", "long": strings.Repeat("a", limit.KeyName+1), "zero": "a\x00"} {
		_, err := of.CreateKey(t.Context(), w.call, "", "default", key)
		if f := wantFault(t, err, "key-name-invalid"); f.Msg != "a key needs a name of 1 to 64 characters" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"project": func() error { _, err := of.CreateProject(t.Context(), w.call, "none", "x"); return err },
		"key":     func() error { _, err := of.CreateKey(t.Context(), w.call, "none", "default", "x"); return err },
		"reveal":  func() error { _, err := of.RevealKey(t.Context(), w.call, "", "default", "x"); return err },
		"revoke":  func() error { _, err := of.RevokeKey(t.Context(), w.call, "", "default", "x"); return err },
	} {
		t.Log(name)
		wantFault(t, call(), "not-found")
	}
	if after := len(w.projectTypes("default")); after != before {
		t.Errorf("%d events of %s were written", after-before, stream.Project)
	}
}
