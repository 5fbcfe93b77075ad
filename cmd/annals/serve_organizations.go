package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/operator"
	"github.com/annals-project/annals/internal/secret"
)

// operatorCall is a call that no request of the API asked for, by whom its events name.
func operatorCall(by string, at time.Time) commands.Call {
	return commands.Call{Principal: auth.Principal{Kind: auth.Kind(by)}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: at}
}

// prepareEvery is how often an organization is looked for whose creation broke off while the service runs.
const prepareEvery = 10 * time.Second

// keepPreparing ends the preparation of organizations whose creation broke off: the process that created one ended, or its projections
// were late.
func (p *process) keepPreparing(ctx context.Context) error {
	for sleep(ctx, p.prepareEvery) {
		if err := p.prepare(ctx); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "an organization is not prepared yet", "err", err)
		}
	}
	return nil
}

// organizations is what an operator does with organizations and their projects.
type organizations struct {
	commands *commands.Service
	// dataDir is the folder whose credentials file follows the management key.
	dataDir string
	now     func() time.Time
}

var _ operator.Organizations = organizations{}

func (o organizations) call(by string) commands.Call {
	if by == "" {
		by = "operator"
	}
	return operatorCall(by, o.now())
}

// CreateOrganization implements operator.Organizations.
func (o organizations) CreateOrganization(ctx context.Context, in operator.NewOrganization) (operator.Organization, error) {
	made, err := o.commands.CreateOrganization(ctx, o.call(in.By), commands.NewOrganization{Name: in.Name, Plan: metering.Plan(in.Plan), OwnerEmail: in.OwnerEmail})
	out := operator.Organization{
		ID: made.ID.String(), Name: made.Name, Plan: string(made.Plan), OwnerEmail: made.OwnerEmail, CreatedAt: &made.CreatedAt,
		Granted: unlessZero(made.StartingTenths), ManagementKey: made.ManagementKey,
	}
	if late(err) {
		out.Warning, err = "the service is behind: calls of the organization are refused until it is prepared", nil
	}
	return out, refusal(err)
}

// SetPlan implements operator.Organizations.
func (o organizations) SetPlan(ctx context.Context, in operator.PlanRequest) (operator.Organization, error) {
	changed, err := o.commands.SetPlan(ctx, o.call(in.By), in.Organization, metering.Plan(in.Plan))
	return changedOrganization(changed), refusal(err)
}

// GrantCredits implements operator.Organizations.
func (o organizations) GrantCredits(ctx context.Context, in operator.CreditsRequest) (operator.Organization, error) {
	changed, err := o.commands.GrantCredits(ctx, o.call(in.By), in.Organization, in.Tenths)
	out := changedOrganization(changed)
	out.Granted = metering.Credits(changed.GrantedTenths)
	return out, refusal(err)
}

// SetSpendCap implements operator.Organizations.
func (o organizations) SetSpendCap(ctx context.Context, in operator.SpendCapRequest) (operator.Organization, error) {
	changed, err := o.commands.SetSpendCap(ctx, o.call(in.By), in.Organization, in.Tenths)
	return changedOrganization(changed), refusal(err)
}

// RotateManagementKey implements operator.Organizations.
func (o organizations) RotateManagementKey(ctx context.Context, in operator.RotateRequest) (operator.Organization, error) {
	rotated, err := o.commands.RotateManagementKey(ctx, o.call(in.By), in.Organization)
	if err != nil && !late(err) {
		return operator.Organization{}, refusal(err)
	}
	out := operator.Organization{ID: rotated.ID.String(), Name: rotated.Name, ManagementKey: rotated.Key.Clear}
	if late(err) {
		out.Warning = "the service is behind: the former key is refused shortly"
	}
	file := filepath.Join(o.dataDir, CredentialsFile)
	rewritten, err := followKey(o.dataDir, rotated)
	switch {
	case err != nil:
		out.Warning = file + " could not be rewritten: " + err.Error()
	case rewritten:
		out.CredentialsFile = file
	}
	return out, nil
}

// late reports whether a command was committed and is not seen everywhere yet. A new key is shown all the same: it can be only now.
func late(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Data["committed"] == true
}

// followKey writes the new management key of an organization into the credentials file, where that holds one of the same organization:
// a crash may have left one that is older than the last.
func followKey(dataDir string, rotated commands.Rotated) (bool, error) {
	values, err := readCredentials(dataDir)
	if err != nil || values[managementKeyName] == "" || !rotated.Held(secret.HashText(values[managementKeyName])) {
		return false, err
	}
	values[managementKeyName] = rotated.Key.Clear
	return true, writeCredentials(dataDir, values)
}

// SetArchived implements operator.Organizations.
func (o organizations) SetArchived(ctx context.Context, in operator.ArchiveRequest) (operator.Project, error) {
	changed, err := o.commands.SetArchived(ctx, o.call(in.By), in.Organization, in.Slug, in.Archived)
	return changedProject(changed), refusal(err)
}

// SetCaps implements operator.Organizations.
func (o organizations) SetCaps(ctx context.Context, in operator.CapsRequest) (operator.Project, error) {
	changed, err := o.commands.SetCaps(ctx, o.call(in.By), in.Organization, in.Slug, commands.Caps{
		SetIngestion: in.SetIngestion, Ingestion: in.Ingestion, SetCredit: in.SetCredit, CreditTenths: in.CreditTenths,
	})
	return changedProject(changed), refusal(err)
}

func changedOrganization(c commands.Changed) operator.Organization {
	out := operator.Organization{ID: c.ID.String(), Name: c.Name, Plan: string(c.Plan), Granted: unlessZero(c.GrantedTenths), SpendCap: credits(c.SpendCapTenths)}
	if c.LeftTenths != nil {
		out.Left = metering.Credits(*c.LeftTenths)
	}
	return out
}

func changedProject(c commands.ProjectChanged) operator.Project {
	return operator.Project{
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

// refusal is the error of a command in words for an operator: what it refuses is no failure of the service.
func refusal(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Kind == fault.Internal {
		return err
	}
	return operator.Refuse(f.Msg)
}
