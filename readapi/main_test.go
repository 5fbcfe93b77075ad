package readapi_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/readapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var sendID = uuid.MustParse("66666666-6666-4666-8666-666666666666")

// fake is every query of the read side: it notes what it is asked and answers with err, or with
// what it holds.
type fake struct {
	err      error
	status   datapoints.Status
	projects []account.Project
	page     recall.Response
	usage    account.Usage
	// ceilings are those of plans, 32000 where there is none; refusal is what the meter refuses with.
	ceilings   map[metering.Plan]int
	refusal    error
	conditions condition.List

	calls        int
	project      auth.Project
	organization uuid.UUID
	id           uuid.UUID
	query        recall.Query
	charged      []string
}

func (f *fake) Status(_ context.Context, project auth.Project, id uuid.UUID) (datapoints.Status, error) {
	f.calls++
	f.project, f.id = project, id
	return f.status, f.err
}

func (f *fake) Projects(_ context.Context, organization uuid.UUID) ([]account.Project, error) {
	f.calls++
	f.organization = organization
	return f.projects, f.err
}

func (f *fake) Recall(_ context.Context, q recall.Query) (recall.Response, error) {
	f.calls++
	f.query = q
	return f.page, f.err
}

// meter notes what it is asked too.
type meter struct{ *fake }

func (m meter) Charge(_ context.Context, p auth.Principal, identity string, at time.Time, search func() error) error {
	m.project, m.charged = p.Project, append(m.charged, fmt.Sprint(p.OrganizationID, " ", identity, " ", at.IsZero()))
	if m.refusal != nil {
		return m.refusal
	}
	return search()
}

func (m meter) Refund(context.Context, auth.Principal, time.Time) {}

func (m meter) Ceiling(plan metering.Plan) int { return cmp.Or(m.ceilings[plan], 32000) }

func (f *fake) Usage(_ context.Context, p auth.Principal, at time.Time) (account.Usage, error) {
	f.calls++
	f.project, f.organization = p.Project, p.OrganizationID
	if at.IsZero() {
		return account.Usage{}, errors.New("no time")
	}
	return f.usage, f.err
}

// serve serves the read side over a fake, with the real edge.
func serve(t *testing.T, f *fake) *apitest.Client {
	t.Helper()
	e := httpx.New(apitest.EdgeConfig())
	recalls := recall.Charged{Meter: meter{f}, Recalls: f}
	readapi.Register(e, readapi.Deps{Statuses: f, Projects: f, Recall: recalls, Usage: f})
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{
		Name: "annals_test_total",
		Help: "A metric of a test.",
	}))
	readapi.RegisterOperation(e, readapi.Operation{
		Conditions: func(context.Context) condition.List { return f.conditions }, Metrics: registry,
	})
	return apitest.Start(t, readapi.OpenAPI, e)
}

func instant(hour int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, 0, time.UTC) }

func ptr[T any](v T) *T { return &v }
