package operatorapi

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/erasures"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
)

// OrganizationCommand is a command on an organization or one of its projects. A running server performs it with Call.
// Without one, a process that reaches the event store performs it with On. ErrRefused is its refusal.
type OrganizationCommand[In, Out any] struct {
	Operation[In, Out]
	// On performs the command in this process.
	On func(ctx context.Context, s *commands.Service, call engine.Call, in In) (Out, error)
}

func command[In, Out any](
	path string, on func(ctx context.Context, s *commands.Service, call engine.Call, in In) (Out, error),
) OrganizationCommand[In, Out] {
	return OrganizationCommand[In, Out]{Operation[In, Out]{http.MethodPost, path}, on}
}

func (c OrganizationCommand[In, Out]) route(s *commands.Service, now func() time.Time) Route {
	return c.ServeAs(now, func(ctx context.Context, call engine.Call, in In) (Out, error) {
		return c.On(ctx, s, call, in)
	})
}

type (
	organization = tenants.Organization
	project      = tenants.Project
	service      = commands.Service
	caller       = engine.Call
)

// The commands on organizations and their projects.
var (
	CreateOrganization = command("/operator/organizations",
		func(ctx context.Context, s *service, call caller, in NewOrganization) (organization, error) {
			return s.CreateOrganization(ctx, call, in.NewOrganization)
		})
	SetPlan = command("/operator/organizations/plan",
		func(ctx context.Context, s *service, call caller, in PlanRequest) (organization, error) {
			return s.SetPlan(ctx, call, in.Organization, in.Plan)
		})
	GrantCredits = command("/operator/organizations/credits",
		func(ctx context.Context, s *service, call caller, in CreditsRequest) (organization, error) {
			return s.GrantCredits(ctx, call, in.Organization, in.Tenths)
		})
	SetSpendCap = command("/operator/organizations/spend-cap",
		func(ctx context.Context, s *service, call caller, in SpendCapRequest) (organization, error) {
			return s.SetSpendCap(ctx, call, in.Organization, in.Tenths)
		})
	RotateManagementKey = command("/operator/organizations/rotate-management-key",
		func(ctx context.Context, s *service, call caller, in Target) (organization, error) {
			return s.RotateManagementKey(ctx, call, in.Organization)
		})
	SetArchived = command("/operator/projects/archive",
		func(ctx context.Context, s *service, call caller, in ArchiveRequest) (project, error) {
			return s.SetArchived(ctx, call, in.Organization, in.Slug, in.Archived)
		})
	SetCaps = command("/operator/projects/caps",
		func(ctx context.Context, s *service, call caller, in CapsRequest) (project, error) {
			return s.SetCaps(ctx, call, in.Organization, in.Slug, in.Caps)
		})
)

// OrganizationRoutes returns the routes of the commands on organizations and their projects.
func OrganizationRoutes(s *commands.Service, now func() time.Time) []Route {
	return []Route{
		CreateOrganization.route(s, now), SetPlan.route(s, now), GrantCredits.route(s, now), SetSpendCap.route(s, now),
		RotateManagementKey.route(s, now), SetArchived.route(s, now), SetCaps.route(s, now),
	}
}

// Target names an organization, by name or id or "" for the only one, and the operator.
type Target struct {
	Organization string `json:"organization,omitempty"`
	By           string `json:"by"`
}

// NewOrganization creates an organization. By is a remark of the operator.
type NewOrganization struct {
	tenancy.NewOrganization
	By string `json:"by"`
}

// PlanRequest puts an organization on a plan.
type PlanRequest struct {
	Target
	Plan metering.Plan `json:"plan"`
}

// CreditsRequest grants credits in tenths, or takes them back below 0.
type CreditsRequest struct {
	Target
	Tenths int64 `json:"tenths"`
}

// SpendCapRequest caps the charges of a month, in tenths of a credit. Nil is no cap.
type SpendCapRequest struct {
	Target
	Tenths *int64 `json:"tenths"`
}

// ArchiveRequest archives a project or restores it.
type ArchiveRequest struct {
	Target
	Slug     string `json:"slug"`
	Archived bool   `json:"archived"`
}

// CapsRequest changes the ingestion cap, the credit cap, or both.
type CapsRequest struct {
	Target
	Slug string `json:"slug"`
	tenancy.Caps
}

// The operations that read organizations, and those on projects and their keys.
var (
	ListOrganizations = tenancyOperation[[]tenants.ListedOrganization]("organizations/list")
	ShowOrganization  = tenancyOperation[tenants.ListedOrganization]("organizations/show")
	ListProjects      = tenancyOperation[[]tenants.ListedProject]("projects/list")
	CreateProject     = tenancyOperation[tenants.ListedProject]("projects/create")
	ShowProject       = tenancyOperation[tenants.ListedProject]("projects/show")
	ListKeys          = tenancyOperation[[]tenants.Key]("keys/list")
	CreateKey         = tenancyOperation[tenants.Key]("keys/create")
	RevealKey         = tenancyOperation[tenants.Key]("keys/reveal")
	RevokeKey         = tenancyOperation[tenants.Key]("keys/revoke")
)

func tenancyOperation[Out any](path string) Operation[TenancyRequest, Out] {
	return Operation[TenancyRequest, Out]{http.MethodPost, "/operator/" + path}
}

// TenancyRequest names an organization, and where the operation needs them a project by its slug and a key by its id.
type TenancyRequest struct {
	Target
	Project string `json:"project,omitempty"`
	Key     string `json:"key,omitempty"`
	// Name is that of what is created.
	Name string `json:"name,omitempty"`
}

// TenancyRoutes returns the routes of the operations.
func TenancyRoutes(s *commands.Service, of access.Tenancy, now func() time.Time) []Route {
	do := tenancy.Operator{Service: s.Tenancy, Tenants: of}
	return []Route{
		ListOrganizations.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.ListedOrganization, error) {
			return of.Organizations(ctx, in.Organization)
		}),
		ShowOrganization.Serve(func(ctx context.Context, in TenancyRequest) (tenants.ListedOrganization, error) {
			return of.Organization(ctx, in.Organization)
		}),
		ListProjects.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.ListedProject, error) {
			return of.Projects(ctx, in.Organization)
		}),
		CreateProject.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.ListedProject, error) {
			return do.CreateProject(ctx, call, in.Organization, in.Name)
		}),
		ShowProject.Serve(func(ctx context.Context, in TenancyRequest) (tenants.ListedProject, error) {
			return of.Project(ctx, in.Organization, in.Project)
		}),
		ListKeys.Serve(func(ctx context.Context, in TenancyRequest) ([]tenants.Key, error) {
			return of.Keys(ctx, in.Organization, in.Project)
		}),
		CreateKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.CreateKey(ctx, call, in.Organization, in.Project, in.Name)
		}),
		RevealKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.RevealKey(ctx, call, in.Organization, in.Project, in.Key)
		}),
		RevokeKey.ServeAs(now, func(ctx context.Context, call caller, in TenancyRequest) (tenants.Key, error) {
			return do.RevokeKey(ctx, call, in.Organization, in.Project, in.Key)
		}),
	}
}

// The operations on webhooks.
var (
	CreateWebhook = webhookOperation[tenants.Webhook]("create")
	ListWebhooks  = webhookOperation[[]tenants.Webhook]("list")
	ShowWebhook   = webhookOperation[tenants.Webhook]("show")
	ChangeWebhook = webhookOperation[tenants.Webhook]("change")
	PauseWebhook  = webhookOperation[tenants.Webhook]("pause")
	RotateWebhook = webhookOperation[tenants.Webhook]("rotate-token")
	DeleteWebhook = webhookOperation[tenants.Webhook]("delete")
	TryWebhook    = webhookOperation[tenants.TriedEvent]("try")
)

func webhookOperation[Out any](path string) Operation[WebhookRequest, Out] {
	return Operation[WebhookRequest, Out]{http.MethodPost, "/operator/webhooks/" + path}
}

// WebhookRequest names a webhook by ID, or a project for a new one and for a list.
type WebhookRequest struct {
	Target
	Project string `json:"project,omitempty"`
	ID      string `json:"id,omitempty"`
	// Settings are those of a new webhook, or of a change.
	Settings webhook.Settings `json:"settings"`
	// Pause is false to resume.
	Pause bool `json:"pause,omitempty"`
	// Body is the event to try.
	Body []byte `json:"body,omitempty"`
}

// WebhookRoutes returns the routes of the operations.
func WebhookRoutes(do tenancy.Webhooks, of access.Webhooks, now func() time.Time) []Route {
	return []Route{
		CreateWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Create(ctx, call, in.Organization, in.Project, in.Settings)
		}),
		ListWebhooks.Serve(func(ctx context.Context, in WebhookRequest) ([]tenants.Webhook, error) {
			return of.List(ctx, in.Organization, in.Project)
		}),
		ShowWebhook.Serve(func(ctx context.Context, in WebhookRequest) (tenants.Webhook, error) {
			return of.Show(ctx, in.Organization, in.ID)
		}),
		ChangeWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Change(ctx, call, in.Organization, in.ID, in.Settings)
		}),
		PauseWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.SetPaused(ctx, call, in.Organization, in.ID, in.Pause)
		}),
		RotateWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.RotateToken(ctx, call, in.Organization, in.ID)
		}),
		DeleteWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.Webhook, error) {
			return do.Remove(ctx, call, in.Organization, in.ID)
		}),
		TryWebhook.ServeAs(now, func(ctx context.Context, call caller, in WebhookRequest) (tenants.TriedEvent, error) {
			return do.Try(ctx, call, in.Organization, in.ID, in.Body)
		}),
	}
}

// The operations that erase a person. ErasePerson begins a process that the service continues by itself, or finds the
// one that erases the person already; PersonErasure returns its state.
var (
	FindPerson    = Operation[PersonRequest, erasure.Person]{http.MethodPost, "/operator/people/find"}
	ErasePerson   = Operation[PersonRequest, PersonErasureID]{http.MethodPost, "/operator/people/erase"}
	PersonErasure = Operation[PersonErasureID, erasure.PersonStatus]{http.MethodPost, "/operator/people/status"}
)

// PersonRequest names an identity of a project. Target.Organization is a name or an id, "" for any.
type PersonRequest struct {
	Target
	Project  string `json:"project"`
	Identity string `json:"identity"`
}

// PersonErasureID names an erasure of a person.
type PersonErasureID struct {
	Project uuid.UUID `json:"project"`
	ID      uuid.UUID `json:"id"`
}

// PeopleRoutes returns the routes of the operations.
func PeopleRoutes(people *erasure.People, of access.Tenancy, now func() time.Time) []Route {
	return []Route{
		FindPerson.Serve(func(ctx context.Context, in PersonRequest) (erasure.Person, error) {
			project, err := of.Project(ctx, in.Organization, in.Project)
			if err != nil {
				return erasure.Person{}, err
			}
			return people.Find(ctx, project.ID, in.Identity)
		}),
		ErasePerson.ServeAs(now, func(
			ctx context.Context, call caller, in PersonRequest,
		) (out PersonErasureID, err error) {
			project, err := of.Project(ctx, in.Organization, in.Project)
			if err != nil {
				return out, err
			}
			out.Project = project.ID
			out.ID, err = people.Start(ctx, erasures.Person{
				ProjectID: project.ID, Identity: in.Identity, By: call.Principal.Name(),
			})
			return out, err
		}),
		PersonErasure.Serve(func(ctx context.Context, in PersonErasureID) (erasure.PersonStatus, error) {
			return people.Status(ctx, in.Project, in.ID)
		}),
	}
}

// LinkPerson makes a link that signs a person in once, with a new password.
var LinkPerson = Operation[PersonLinkRequest, PersonLink]{http.MethodPost, "/operator/people/link"}

// PersonLinkRequest names a person by the address. Somebody who is a member of nothing becomes the owner of the
// organization, if that has none.
type PersonLinkRequest struct {
	Target
	Email string `json:"email"`
}

// PersonLink is a link that works once.
type PersonLink struct {
	Link      string    `json:"link"`
	ExpiresAt time.Time `json:"expiresAt"`
}
