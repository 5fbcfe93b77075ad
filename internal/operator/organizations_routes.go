package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// The routes of the organizations; each is a POST of its request as JSON.
const (
	pathOrganizations = "/operator/organizations"
	pathPlan          = "/operator/organizations/plan"
	pathCredits       = "/operator/organizations/credits"
	pathSpendCap      = "/operator/organizations/spend-cap"
	pathRotate        = "/operator/organizations/rotate-management-key"
	pathArchive       = "/operator/projects/archive"
	pathCaps          = "/operator/projects/caps"
)

// OrganizationRoutes serves the commands on organizations and their projects.
func OrganizationRoutes(o Organizations) Routes {
	return func(mux *http.ServeMux, out answers) {
		mux.HandleFunc("POST "+pathOrganizations, asked(out, o.CreateOrganization))
		mux.HandleFunc("POST "+pathPlan, asked(out, o.SetPlan))
		mux.HandleFunc("POST "+pathCredits, asked(out, o.GrantCredits))
		mux.HandleFunc("POST "+pathSpendCap, asked(out, o.SetSpendCap))
		mux.HandleFunc("POST "+pathRotate, asked(out, o.RotateManagementKey))
		mux.HandleFunc("POST "+pathArchive, asked(out, o.SetArchived))
		mux.HandleFunc("POST "+pathCaps, asked(out, o.SetCaps))
	}
}

// asked serves one command: its request is the body, its answer the body of a 200.
func asked[In, Out any](out answers, do func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		body, err := io.ReadAll(io.LimitReader(r.Body, maxAsk))
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			out.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "the request cannot be read: " + err.Error()})
			return
		}
		answer, err := do(r.Context(), in)
		switch {
		case errors.Is(err, ErrRefused):
			out.write(w, r, http.StatusConflict, refusal{codeRefused, err.Error()})
		case err != nil:
			out.refuse(w, r, err)
		default:
			out.write(w, r, http.StatusOK, answer)
		}
	}
}

var _ Organizations = (*Client)(nil)

// CreateOrganization implements Organizations.
func (c *Client) CreateOrganization(ctx context.Context, in NewOrganization) (Organization, error) {
	return ask[Organization](ctx, c, pathOrganizations, in)
}

// SetPlan implements Organizations.
func (c *Client) SetPlan(ctx context.Context, in PlanRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathPlan, in)
}

// GrantCredits implements Organizations.
func (c *Client) GrantCredits(ctx context.Context, in CreditsRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathCredits, in)
}

// SetSpendCap implements Organizations.
func (c *Client) SetSpendCap(ctx context.Context, in SpendCapRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathSpendCap, in)
}

// RotateManagementKey implements Organizations.
func (c *Client) RotateManagementKey(ctx context.Context, in RotateRequest) (Organization, error) {
	return ask[Organization](ctx, c, pathRotate, in)
}

// SetArchived implements Organizations.
func (c *Client) SetArchived(ctx context.Context, in ArchiveRequest) (Project, error) {
	return ask[Project](ctx, c, pathArchive, in)
}

// SetCaps implements Organizations.
func (c *Client) SetCaps(ctx context.Context, in CapsRequest) (Project, error) {
	return ask[Project](ctx, c, pathCaps, in)
}

// ask posts a request and reads its answer. What the server refuses is ErrRefused with the server's reason.
func ask[Out any](ctx context.Context, c *Client, path string, in any) (answer Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return answer, fmt.Errorf("encode request: %w", err)
	}
	res, err := c.post(ctx, path, body)
	if err != nil {
		return answer, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return answer, fmt.Errorf("read answer: %w", err)
	}
	var r refusal
	if res.StatusCode == http.StatusConflict && json.Unmarshal(text, &r) == nil && r.Code == codeRefused {
		return answer, &refusedError{r.Message}
	}
	if res.StatusCode != http.StatusOK {
		return answer, refused(res.StatusCode, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return answer, nil
}

// refusedError is ErrRefused in the words of the one who refuses.
type refusedError struct{ reason string }

// Error implements error.
func (e *refusedError) Error() string { return e.reason }

// Is makes it ErrRefused to errors.Is.
func (e *refusedError) Is(target error) bool { return target == ErrRefused }

// Refuse is ErrRefused for a reason in plain words.
func Refuse(reason string) error { return &refusedError{reason} }
