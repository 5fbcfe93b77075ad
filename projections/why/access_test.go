package why_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
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

// pastLog is the stream of a data point.
type pastLog []eventstore.DecodedEvent

func (l pastLog) Read(
	_ context.Context, _ string, from eventstore.Revision, _ eventstore.Direction, limit int,
) (page []eventstore.DecodedEvent, err error) {
	for _, e := range slices.Backward(l) {
		if (from == eventstore.EndOfStream || e.Revision <= from) && len(page) < limit {
			page = append(page, e)
		}
	}
	return page, nil
}

// pastSend is a send of a data point in the order of effects.
type pastSend struct {
	accepted time.Time
	state    datapoint.State
	stored   int // an item of a batch is stored later than it takes effect
}

// storedSends is a stream of random sends, of which some are fanned out after later ones.
func storedSends(random *rand.Rand) (sends []pastSend, log pastLog) {
	at := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	for n := range 1 + random.IntN(60) {
		s := pastSend{accepted: at, stored: n, state: datapoint.State{
			SourceID: "a", Revision: n + 1, OccurredAt: at.AddDate(-1, 0, 0), Audience: uuid.UUID{byte(random.IntN(4))},
		}}
		if random.IntN(3) == 0 {
			s.stored += random.IntN(5)
		}
		sends, at = append(sends, s), at.Add(time.Duration(1+random.IntN(3600))*time.Second)
	}
	order := make([]int, len(sends))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return sends[a].stored - sends[b].stored })
	newest := -1
	for revision, n := range order {
		e := &datapoint.Moved{
			Send:   datapoint.Send{AcceptedAt: sends[n].accepted, Commit: uint64(10 * (n + 1))},
			States: datapoint.States{Effect: sends[n].state},
		}
		if n < newest {
			e.Current = &sends[newest].state
		}
		newest = max(n, newest)
		log = append(log, eventstore.DecodedEvent{Event: e, Recorded: eventstore.Recorded{
			Stream: stream.Name(stream.DataPoint, uuid.UUID{1}), Revision: eventstore.Revision(revision),
			Position: eventstore.Position(10*(len(sends)+revision) + 5),
		}})
	}
	return sends, log
}

// Where a data point was agrees with its sends in the order in which they took effect.
func TestPast_PlacementOfEachTime(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 11))
	for range 50 {
		sends, log := storedSends(random)
		span := sends[len(sends)-1].accepted.Sub(sends[0].accepted) + time.Hour
		for range 40 {
			at := sends[0].accepted.Add(time.Duration(random.Int64N(int64(span))) - 30*time.Minute)
			var want *datapoint.State
			for n := range sends {
				if !sends[n].accepted.After(at) {
					want = &sends[n].state
				}
			}
			got, err := why.Past{Log: log}.PlacementAt(t.Context(), uuid.UUID{1}, at)
			if err != nil || !got.IsKnown || got.Sent != (want != nil) {
				t.Fatalf("%+v, %v, want %+v", got, err, want)
			}
			if want != nil && (got.Audience != want.Audience || got.Revision != want.Revision ||
				!got.OccurredAt.Equal(want.OccurredAt)) {
				t.Fatalf("of %d sends: %+v, want %+v", len(sends), got, want)
			}
		}
	}
}

// A data point with very many sends since has a reason, and no answer that may be wrong.
func TestPast_ManySends(t *testing.T) {
	var log pastLog
	begin := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	for n := range 600 {
		log = append(log, eventstore.DecodedEvent{
			Event:    &datapoint.Resent{Send: datapoint.Send{AcceptedAt: begin.Add(time.Duration(n) * time.Minute)}},
			Recorded: eventstore.Recorded{Revision: eventstore.Revision(n), Position: eventstore.Position(n)},
		})
	}
	for at, known := range map[time.Duration]bool{time.Minute: false, 500 * time.Minute: true} {
		got, err := why.Past{Log: log}.PlacementAt(t.Context(), uuid.UUID{1}, begin.Add(at))
		if err != nil || got.IsKnown != known {
			t.Errorf("after %v: %+v, %v", at, got, err)
		}
	}
}

// was is where a data point was.
type was struct {
	why.PastPlacement
	deleted time.Time
}

func (w was) PlacementAt(context.Context, uuid.UUID, time.Time) (why.PastPlacement, error) {
	return w.PastPlacement, nil
}

func (w was) DeletedAt(context.Context, auth.Project, uuid.UUID) (time.Time, error) {
	return w.deleted, nil
}

func TestAccess_ReasonsOfThen(t *testing.T) {
	at := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	live := placed{sent: true}
	gone := placed{sent: true, point: datapoints.Placement{Deleted: true}}
	of := func(p datapoints.Placement) was {
		return was{PastPlacement: why.PastPlacement{Placement: p, Sent: true, IsKnown: true}}
	}
	scoped := of(datapoints.Placement{Audience: uuid.UUID{1}})
	judged := func(j directory.Judgement, p directory.PastJudgement) placed {
		j.Past = &p
		return placed{sent: true, judge: j}
	}
	known, head := directory.PastJudgement{IsKnown: true}, &directory.AudienceHead{Slug: "a"}
	for _, c := range []struct {
		want  why.Reason
		point placed
		was   was
	}{
		{why.ReasonNeverSent, placed{}, was{}},
		{why.ReasonDeleted, gone, was{deleted: at}},
		{why.ReasonPointErased, gone, was{deleted: at.Add(time.Second)}},
		{why.ReasonNotYetSent, live, was{PastPlacement: why.PastPlacement{IsKnown: true}}},
		{why.ReasonNotLooked, live, was{}},
		{why.ReasonProjectVisible, live, of(datapoints.Placement{})},
		{why.ReasonLater, live, of(datapoints.Placement{OccurredAt: at.Add(time.Second)})},
		{why.ReasonIdentityErased, judged(directory.Judgement{}, directory.PastJudgement{ErasedAt: &at}), scoped},
		{why.ReasonNotLooked, judged(directory.Judgement{Audience: head}, directory.PastJudgement{}), scoped},
		{why.ReasonListed, judged(directory.Judgement{Audience: head, HasRecord: true, IsMember: true}, known), scoped},
		{why.ReasonNoRecord, judged(directory.Judgement{Audience: head}, known), scoped},
		{why.ReasonAudienceRemoved, judged(directory.Judgement{HasRecord: true}, known), scoped},
	} {
		a := why.Access{Points: c.point, Directory: c.point, Past: c.was, Now: time.Now}
		got, err := a.ExplainAt(t.Context(), project, "ana", "call", at)
		may := c.want == why.ReasonProjectVisible || c.want == why.ReasonListed
		if err != nil || got.Reason != c.want || got.MayRead != may || !got.At.Equal(at) {
			t.Errorf("%s: %+v, %v", c.want, got, err)
		}
	}
}
