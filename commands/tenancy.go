package commands

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/tenants"
)

// Tenants finds organizations, projects and keys of any organization, with everything that was answered before. An
// organization is named by name or id, "" is the only one, or any for a project; a project by slug, a key by id. The
// faults are not-found, conflict and service-unavailable.
type Tenants interface {
	Organization(ctx context.Context, organization string) (tenants.ListedOrganization, error)
	Project(ctx context.Context, organization, slug string) (tenants.ListedProject, error)
	Key(ctx context.Context, organization, slug, id string) (tenants.ListedProject, tenants.Key, error)
}

// Tenancy performs commands on projects and keys of the organization that a person names, for operators: what the
// commands of Service do for the organization of a key. What is committed but not visible yet has a warning.
type Tenancy struct {
	Service *Service
	Tenants Tenants
}

// CreateProject creates a project of an organization.
func (t Tenancy) CreateProject(
	ctx context.Context, call Call, organization, name string,
) (out tenants.ListedProject, err error) {
	o, err := t.Tenants.Organization(ctx, organization)
	if err != nil {
		return out, err
	}
	made, err := t.Service.CreateProject(ctx, call.in(o.ID), name)
	if _, err = warned(err, ""); err != nil {
		return out, err
	}
	return tenants.ListedProject{
		Project:   tenants.Project{ID: made.ID, Organization: o.Name, Slug: made.Slug, Name: made.Name},
		CreatedAt: made.CreatedAt, OrganizationID: o.ID,
	}, nil
}

// CreateKey creates a key of a project and returns its clear value.
func (t Tenancy) CreateKey(
	ctx context.Context, call Call, organization, slug, name string,
) (out tenants.Key, err error) {
	p, err := t.Tenants.Project(ctx, organization, slug)
	if err != nil {
		return out, err
	}
	if n := utf8.RuneCountInString(name); n < 1 || n > limit.KeyName || strings.ContainsRune(name, 0) {
		return out, fault.New(fault.Invalid, fault.CodeKeyNameInvalid, "a key needs a name of 1 to %d characters",
			limit.KeyName)
	}
	made, err := t.Service.CreateKey(ctx, call.in(p.OrganizationID), p.Slug, name)
	warning, err := warned(err, "the service lags: the key is taken shortly")
	if err != nil {
		return out, err
	}
	return tenants.Key{
		ID: made.ID, Project: p.Slug, Name: made.Name, Prefix: made.KeyPrefix, Suffix: made.KeySuffix,
		CreatedAt: made.CreatedAt, Key: made.Key, Warning: warning,
	}, nil
}

// RevealKey returns a live key with its clear value.
func (t Tenancy) RevealKey(ctx context.Context, call Call, organization, slug, id string) (tenants.Key, error) {
	p, k, err := t.Tenants.Key(ctx, organization, slug, id)
	if err != nil {
		return k, err
	}
	k.Key, err = t.Service.RevealKey(ctx, call.in(p.OrganizationID), p.Slug, id)
	return k, err
}

// RevokeKey revokes a live key.
func (t Tenancy) RevokeKey(ctx context.Context, call Call, organization, slug, id string) (tenants.Key, error) {
	p, k, err := t.Tenants.Key(ctx, organization, slug, id)
	if err != nil {
		return k, err
	}
	k.RevokedAt = &call.ReceivedAt
	k.Warning, err = warned(t.Service.RevokeKey(ctx, call.in(p.OrganizationID), p.Slug, id),
		"the service lags: the key is refused shortly")
	return k, err
}

// in returns the call in an organization.
func (c Call) in(organization uuid.UUID) Call {
	c.Principal.OrganizationID = organization
	return c
}
