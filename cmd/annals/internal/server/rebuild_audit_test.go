package server

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/visits"
	"github.com/annals-project/annals/projections/audit"
	"github.com/annals-project/annals/projections/audit/verify"
)

// manageAudit writes the events about who read what, and what people did without a change.
func (h *harness) manageAudit(own string) {
	h.t.Helper()
	service, call := h.people()
	organization := h.organizations()[0].ID
	runtest.Must(h.t, service.SetVisitsKept(h.t.Context(), call, organization, 90))
	runtest.Must(h.t, service.SetAuditorTexts(h.t.Context(), call, organization, true))
	owner, _, err := service.FindPerson(h.t.Context(), h.credentials()["ANNALS_OWNER_EMAIL"])
	runtest.Must(h.t, err)
	for _, e := range []event.Event{
		&visit.SignedIn{Way: visit.Password}, &visit.SignInRefused{}, &visit.LinkMade{Purpose: visit.Recovery},
		&visit.LinkUsed{Purpose: visit.Recovery}, &visit.PasswordChanged{}, &visit.SecondFactorChanged{},
		&visit.SessionsEnded{}, &visit.Exported{What: "data", Format: "csv"},
		&visit.ReadOpened{ReadID: uuid.New()},
	} {
		runtest.Must(h.t, h.visits.Add(h.t.Context(), visits.Entry{
			Organization: organization, Person: owner, RequestID: uuid.New(), At: h.cfg.now(), Event: e,
		}))
	}
	runtest.Must(h.t, h.visits.Add(h.t.Context(), visits.Entry{
		Organization: organization, Principal: "operator test", RequestID: uuid.New(), At: h.cfg.now(),
		Event: &visit.OperatorRead{Command: "annals export"},
	}))

	h.ahead.Add(int64(visit.RefusedTime)) // what strangers cause is gathered for so long
	runtest.Must(h.t, h.storage.db.QueryRow(h.t.Context(), "select id from access.projects where slug = 'default'").
		Scan(&call.Principal.Project.ID))
	runtest.Must(h.t, service.SetReads(h.t.Context(), call, project.Reads{Mode: project.ReadsKept, Days: 30}))
	h.must(own, http.MethodPost, api+"/recall", point{"query": "Which editor does Ana like?", "identity": "Ana"}, nil)
	runtest.Must(h.t, service.SetReads(h.t.Context(), call, project.Reads{Mode: project.ReadsOff, Days: 30}))
	runtest.Await(h.t, "a checkpoint is cosigned", func() bool {
		runtest.Must(h.t, h.audit.signer.Pass(h.t.Context()))
		runtest.Must(h.t, h.audit.witnesses.Pass(h.t.Context()))
		return h.count("audit.checkpoint-cosigned.v1") > 0
	})
	for _, name := range []string{
		"reads.recorded.v1", "visit.exported.v1", "visit.operator-read.v1", "visit.sign-in-refused.v1", "visit.link-made.v1",
	} {
		runtest.Await(h.t, name+" is in the log", func() bool { return h.count(name) > 0 })
	}
}

// wantVerified compares the trees of the audit log with the log and its checkpoints.
func (h *harness) wantVerified(when string) {
	h.t.Helper()
	v := verify.Verifier{
		Log: h.storage.journal(), Trees: audit.Queries{DB: h.storage.db}, Applied: verify.Waiting(h.read.waiter),
	}
	report, err := v.Verify(h.t.Context(), verify.Request{})
	if err != nil || report.Finding != nil || len(report.Trees) < 2 {
		h.t.Errorf("%s: %+v, %+v, %v", when, report, report.Finding, err)
	}
}
