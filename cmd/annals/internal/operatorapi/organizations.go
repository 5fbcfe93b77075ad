package operatorapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/secret"
)

// OrganizationCommand is an operation on an organization or one of its projects. A running server
// performs it with Call. Without one, a process that reaches the event store performs it with On. If
// the request names no organization, it means the only one. ErrRefused is its refusal.
type OrganizationCommand[In, Out any] struct {
	Operation[In, Out]
	// On performs the command in this process.
	On func(Organizations, context.Context, In) (Out, error)
}

func command[In, Out any](
	path string, on func(Organizations, context.Context, In) (Out, error),
) OrganizationCommand[In, Out] {
	return OrganizationCommand[In, Out]{Operation[In, Out]{http.MethodPost, path}, on}
}

func (c OrganizationCommand[In, Out]) route(o Organizations) Route {
	return c.Serve(func(ctx context.Context, in In) (Out, error) { return c.On(o, ctx, in) })
}

// The commands on organizations and their projects.
var (
	CreateOrganization  = command("/operator/organizations", Organizations.Create)
	SetPlan             = command("/operator/organizations/plan", Organizations.SetPlan)
	GrantCredits        = command("/operator/organizations/credits", Organizations.GrantCredits)
	SetSpendCap         = command("/operator/organizations/spend-cap", Organizations.SetSpendCap)
	RotateManagementKey = command("/operator/organizations/rotate-management-key", Organizations.RotateManagementKey)
	SetArchived         = command("/operator/projects/archive", Organizations.SetArchived)
	SetCaps             = command("/operator/projects/caps", Organizations.SetCaps)
)

// Organizations performs the commands on organizations and their projects.
type Organizations struct {
	Commands *commands.Service
	// DataDir is the folder whose credentials file receives a new management key.
	DataDir string
	Now     func() time.Time
}

// Routes returns the routes of the commands.
func (o Organizations) Routes() []Route {
	return []Route{
		CreateOrganization.route(o), SetPlan.route(o), GrantCredits.route(o), SetSpendCap.route(o),
		RotateManagementKey.route(o), SetArchived.route(o), SetCaps.route(o),
	}
}

func (o Organizations) call(by string) commands.Call { return callBy(cmp.Or(by, "operator"), o.Now()) }

// Target names an organization, by name or id or "" for the only one, and the operator.
type Target struct {
	Organization string `json:"organization,omitempty"`
	By           string `json:"by"`
}

// NewOrganization creates an organization. OwnerEmail "" names no owner.
type NewOrganization struct {
	Name       string `json:"name"`
	Plan       string `json:"plan"`
	OwnerEmail string `json:"ownerEmail,omitempty"`
	By         string `json:"by"`
}

// PlanRequest puts an organization on a plan.
type PlanRequest struct {
	Target
	Plan string `json:"plan"`
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

// RotateRequest replaces the management key.
type RotateRequest struct{ Target }

// ArchiveRequest archives a project or restores it.
type ArchiveRequest struct {
	Target
	Slug     string `json:"slug"`
	Archived bool   `json:"archived"`
}

// CapsRequest changes the ingestion cap, the credit cap, or both. Nil is no cap.
type CapsRequest struct {
	Target
	Slug         string `json:"slug"`
	SetIngestion bool   `json:"setIngestion"`
	Ingestion    *int64 `json:"ingestion"`
	SetCredit    bool   `json:"setCredit"`
	CreditTenths *int64 `json:"creditTenths"`
}

// Organization is an organization as a command returns it. Fields that do not concern the command
// are empty. Credits are decimals with at most one digit.
type Organization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan,omitempty"`
	// OwnerEmail and CreatedAt are returned by the creation.
	OwnerEmail string     `json:"ownerEmail,omitempty"`
	CreatedAt  *time.Time `json:"createdAt,omitempty"`
	// Granted is what the command granted, below 0 if it took credits back. Left can be spent then.
	Granted json.Number `json:"granted,omitempty"`
	Left    json.Number `json:"left,omitempty"`
	// SpendCap is null without a cap.
	SpendCap *json.Number `json:"spendCap"`
	// ManagementKey is the clear value of a new key, shown only here. CredentialsFile is the file that
	// received it.
	ManagementKey   string `json:"managementKey,omitempty"`
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// Warning is a problem that remains although the command succeeded.
	Warning string `json:"warning,omitempty"`
}

// Project is a project as a command returns it. A missing cap is null. The credit cap is a decimal
// with at most one digit.
type Project struct {
	ID           string       `json:"id"`
	Organization string       `json:"organization"`
	Slug         string       `json:"slug"`
	Name         string       `json:"name"`
	IsArchived   bool         `json:"isArchived"`
	IngestionCap *int64       `json:"ingestionCap"`
	CreditCap    *json.Number `json:"creditCap"`
}

// Create creates an organization and prepares it.
func (o Organizations) Create(ctx context.Context, in NewOrganization) (Organization, error) {
	order := commands.NewOrganization{Name: in.Name, Plan: metering.Plan(in.Plan), OwnerEmail: in.OwnerEmail}
	made, err := o.Commands.CreateOrganization(ctx, o.call(in.By), order)
	out := Organization{
		ID: made.ID.String(), Name: made.Name, Plan: string(made.Plan), OwnerEmail: made.OwnerEmail,
		CreatedAt: &made.CreatedAt, Granted: unlessZero(made.StartingTenths), ManagementKey: made.ManagementKey,
	}
	if isLate(err) {
		out.Warning, err = "the service lags: calls of the organization are refused until it is prepared", nil
	}
	return out, refusedFor(err)
}

// SetPlan puts an organization on a plan.
func (o Organizations) SetPlan(ctx context.Context, in PlanRequest) (Organization, error) {
	changed, err := o.Commands.SetPlan(ctx, o.call(in.By), in.Organization, metering.Plan(in.Plan))
	return changedOrganization(changed), refusedFor(err)
}

// GrantCredits grants credits or takes them back.
func (o Organizations) GrantCredits(ctx context.Context, in CreditsRequest) (Organization, error) {
	changed, err := o.Commands.GrantCredits(ctx, o.call(in.By), in.Organization, in.Tenths)
	out := changedOrganization(changed)
	out.Granted = metering.Credits(changed.GrantedTenths)
	return out, refusedFor(err)
}

// SetSpendCap sets or removes the spend cap.
func (o Organizations) SetSpendCap(ctx context.Context, in SpendCapRequest) (Organization, error) {
	changed, err := o.Commands.SetSpendCap(ctx, o.call(in.By), in.Organization, in.Tenths)
	return changedOrganization(changed), refusedFor(err)
}

// RotateManagementKey replaces the management key, also in the credentials file if that holds a key of
// the same organization.
func (o Organizations) RotateManagementKey(ctx context.Context, in RotateRequest) (Organization, error) {
	rotated, err := o.Commands.RotateManagementKey(ctx, o.call(in.By), in.Organization)
	if err != nil && !isLate(err) {
		return Organization{}, refusedFor(err)
	}
	out := Organization{ID: rotated.ID.String(), Name: rotated.Name, ManagementKey: rotated.Key.Clear}
	if isLate(err) {
		out.Warning = "the service lags: the former key is refused shortly"
	}
	file := filepath.Join(o.DataDir, datafolder.CredentialsFile)
	rewritten, err := replaceStoredKey(o.DataDir, rotated)
	switch {
	case err != nil:
		out.Warning = file + " could not be rewritten: " + err.Error()
	case rewritten:
		out.CredentialsFile = file
	}
	return out, nil
}

// isLate reports whether a command was committed but is not visible yet. A new key is shown even then,
// since it can be shown only now.
func isLate(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Data["committed"] == true
}

// replaceStoredKey writes the new management key of an organization to the credentials file if that
// holds any former key of the organization. After a crash it may hold one that is older than the last.
func replaceStoredKey(dataDir string, rotated commands.Rotated) (bool, error) {
	values, err := datafolder.ReadCredentials(dataDir)
	if err != nil {
		return false, err
	}
	stored := values[datafolder.ManagementKeyName]
	if stored == "" || !rotated.Held(secret.HashText(stored)) {
		return false, nil
	}
	values[datafolder.ManagementKeyName] = rotated.Key.Clear
	return true, datafolder.WriteCredentials(dataDir, values)
}

// SetArchived archives a project or restores it.
func (o Organizations) SetArchived(ctx context.Context, in ArchiveRequest) (Project, error) {
	changed, err := o.Commands.SetArchived(ctx, o.call(in.By), in.Organization, in.Slug, in.Archived)
	return changedProject(changed), refusedFor(err)
}

// SetCaps sets the caps of a project.
func (o Organizations) SetCaps(ctx context.Context, in CapsRequest) (Project, error) {
	changed, err := o.Commands.SetCaps(ctx, o.call(in.By), in.Organization, in.Slug, commands.Caps{
		SetIngestion: in.SetIngestion, Ingestion: in.Ingestion, SetCredit: in.SetCredit, CreditTenths: in.CreditTenths,
	})
	return changedProject(changed), refusedFor(err)
}

func changedOrganization(c commands.Changed) Organization {
	out := Organization{
		ID: c.ID.String(), Name: c.Name, Plan: string(c.Plan), Granted: unlessZero(c.GrantedTenths),
		SpendCap: credits(c.SpendCapTenths),
	}
	if c.LeftTenths != nil {
		out.Left = metering.Credits(*c.LeftTenths)
	}
	return out
}

func changedProject(c commands.ProjectChanged) Project {
	return Project{
		ID: c.ID.String(), Organization: c.Organization, Slug: c.Slug, Name: c.Name, IsArchived: c.Archived,
		IngestionCap: c.IngestionCap, CreditCap: credits(c.CreditCapTenths),
	}
}

func credits(tenths *int64) *json.Number {
	if tenths == nil {
		return nil
	}
	n := metering.Credits(*tenths)
	return &n
}

func unlessZero(tenths int64) json.Number {
	if tenths == 0 {
		return ""
	}
	return metering.Credits(tenths)
}

// refusedFor returns the error of a command for an operator. A fault other than Internal is a refusal.
func refusedFor(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind == fault.Internal {
		return err
	}
	return Refuse("%s", f.Msg)
}
