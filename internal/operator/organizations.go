package operator

import (
	"context"
	"encoding/json"
	"time"
)

// Organizations is what the handler needs of the service's organizations and projects. Where a request names no organization, the
// only one is meant. What cannot be done, for the reason that the error says, is ErrRefused.
type Organizations interface {
	CreateOrganization(ctx context.Context, in NewOrganization) (Organization, error)
	SetPlan(ctx context.Context, in PlanRequest) (Organization, error)
	GrantCredits(ctx context.Context, in CreditsRequest) (Organization, error)
	SetSpendCap(ctx context.Context, in SpendCapRequest) (Organization, error)
	// RotateManagementKey replaces the key, also in the credentials file of the service where that holds the former one.
	RotateManagementKey(ctx context.Context, in RotateRequest) (Organization, error)
	SetArchived(ctx context.Context, in ArchiveRequest) (Project, error)
	SetCaps(ctx context.Context, in CapsRequest) (Project, error)
}

// Whom says which organization is meant, by name or id, "" the only one, and who asks.
type Whom struct {
	Organization string `json:"organization,omitempty"`
	By           string `json:"by"`
}

// NewOrganization asks for an organization; OwnerEmail "" names no owner.
type NewOrganization struct {
	Name       string `json:"name"`
	Plan       string `json:"plan"`
	OwnerEmail string `json:"ownerEmail,omitempty"`
	By         string `json:"by"`
}

// PlanRequest puts an organization on a plan.
type PlanRequest struct {
	Whom
	Plan string `json:"plan"`
}

// CreditsRequest grants credits in tenths, or takes some back.
type CreditsRequest struct {
	Whom
	Tenths int64 `json:"tenths"`
}

// SpendCapRequest bounds what is charged in a month, in tenths of a credit; nil is no bound.
type SpendCapRequest struct {
	Whom
	Tenths *int64 `json:"tenths"`
}

// RotateRequest replaces the management key.
type RotateRequest struct{ Whom }

// ArchiveRequest archives a project or takes it back into service.
type ArchiveRequest struct {
	Whom
	Slug     string `json:"slug"`
	Archived bool   `json:"archived"`
}

// CapsRequest changes the caps that are set to change; nil is none.
type CapsRequest struct {
	Whom
	Slug         string `json:"slug"`
	SetIngestion bool   `json:"setIngestion"`
	Ingestion    *int64 `json:"ingestion"`
	SetCredit    bool   `json:"setCredit"`
	CreditTenths *int64 `json:"creditTenths"`
}

// Organization is an organization as a command answers it; what the command is not about is left out. Credits are decimals with at
// most one digit.
type Organization struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Plan string `json:"plan,omitempty"`
	// OwnerEmail and CreatedAt are answered by the creation.
	OwnerEmail string     `json:"ownerEmail,omitempty"`
	CreatedAt  *time.Time `json:"createdAt,omitempty"`
	// Granted is what the command granted, below 0 where credits were taken back; Left is what can be spent then.
	Granted json.Number `json:"granted,omitempty"`
	Left    json.Number `json:"left,omitempty"`
	// SpendCap is null where there is none.
	SpendCap *json.Number `json:"spendCap"`
	// ManagementKey is the clear value of a new key, shown only here; CredentialsFile is the file that was rewritten with it.
	ManagementKey   string `json:"managementKey,omitempty"`
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// Warning is what is not as it should be although the command was followed.
	Warning string `json:"warning,omitempty"`
}

// Project is a project as a command answers it. Caps are null where there is none; the credit cap is a decimal with at most one digit.
type Project struct {
	ID           string       `json:"id"`
	Organization string       `json:"organization"`
	Slug         string       `json:"slug"`
	Name         string       `json:"name"`
	IsArchived   bool         `json:"isArchived"`
	IngestionCap *int64       `json:"ingestionCap"`
	CreditCap    *json.Number `json:"creditCap"`
}
