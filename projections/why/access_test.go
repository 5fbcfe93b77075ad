package why_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/why"
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

func (p placed) JudgeAt(context.Context, auth.Project, string, uuid.UUID, time.Time) (directory.Judgement, error) {
	return p.judge, nil
}

func TestAccess_Reasons(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	scoped, head := datapoints.Placement{Audience: uuid.UUID{1}}, &directory.AudienceHead{Slug: "a"}
	later := datapoints.Placement{OccurredAt: now.Add(time.Second)}
	for want, p := range map[why.Reason]placed{
		why.ReasonNeverSent:       {},
		why.ReasonDeleted:         {sent: true, point: datapoints.Placement{Deleted: true}},
		why.ReasonProjectVisible:  {sent: true},
		why.ReasonLater:           {sent: true, point: later},
		why.ReasonAudienceRemoved: {sent: true, point: scoped, judge: directory.Judgement{HasRecord: true}},
		why.ReasonOwn: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, PrivateTo: "ana", IsMember: true,
		}},
		why.ReasonPrivate:  {sent: true, point: scoped, judge: directory.Judgement{PrivateTo: "ben"}},
		why.ReasonNoRecord: {sent: true, point: scoped, judge: directory.Judgement{Audience: head}},
		why.ReasonListed: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, IsMember: true,
		}},
		why.ReasonNotListed: {sent: true, point: scoped, judge: directory.Judgement{HasRecord: true, Audience: head}},
		why.ReasonRuleMatches: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, IsMember: true, Match: audience.MatchAll,
		}},
		why.ReasonRuleFails: {sent: true, point: scoped, judge: directory.Judgement{
			HasRecord: true, Audience: head, Match: audience.MatchAll,
		}},
	} {
		a := why.Access{Points: p, Directory: p, Now: func() time.Time { return now }}
		got, err := a.Explain(t.Context(), project, "ana", "call")
		may := want == why.ReasonProjectVisible || want == why.ReasonListed || want == why.ReasonRuleMatches ||
			want == why.ReasonOwn
		if err != nil || got.Reason != want || got.MayRead != may {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}
