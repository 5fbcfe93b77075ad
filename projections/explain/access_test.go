package explain_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/explain"
)

// placed is a data point, and what an identity is to its audience.
type placed struct {
	point datapoints.Placement
	sent  bool
	judge directory.Judgement
}

func (p placed) Placement(context.Context, auth.Project, uuid.UUID) (datapoints.Placement, bool, error) {
	return p.point, p.sent, nil
}

func (p placed) Judge(context.Context, auth.Project, string, uuid.UUID) (directory.Judgement, error) {
	return p.judge, nil
}

func TestAccess_Reasons(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	scoped, head := datapoints.Placement{Audience: uuid.UUID{1}}, &directory.AudienceHead{Slug: "a"}
	later := datapoints.Placement{OccurredAt: now.Add(time.Second)}
	for want, p := range map[explain.Reason]placed{
		explain.NeverSent:       {},
		explain.Deleted:         {sent: true, point: datapoints.Placement{Deleted: true}},
		explain.ProjectVisible:  {sent: true},
		explain.Later:           {sent: true, point: later},
		explain.AudienceRemoved: {sent: true, point: scoped, judge: directory.Judgement{HasRecord: true}},
		explain.NoRecord:        {sent: true, point: scoped, judge: directory.Judgement{Audience: head}},
		explain.Listed: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, IsMember: true,
		}},
		explain.NotListed: {sent: true, point: scoped, judge: directory.Judgement{HasRecord: true, Audience: head}},
		explain.RuleMatches: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, IsMember: true, Match: audience.MatchAll,
		}},
		explain.RuleFails: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, Match: audience.MatchAll,
		}},
	} {
		a := explain.Access{Points: p, Directory: p, Now: func() time.Time { return now }}
		got, err := a.Explain(t.Context(), project, "ana", "call")
		may := want == explain.ProjectVisible || want == explain.Listed || want == explain.RuleMatches
		if err != nil || got.Reason != want || got.MayRead != may {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}
