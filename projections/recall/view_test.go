package recall_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// village is a house whose readers are known.
type village struct {
	*recalltest.House
	directory *directory.Queries
	// stopped is why the directory stands still; meanwhile runs after each look at a viewer from outside the snapshot.
	stopped   error
	meanwhile func()
	// outside and inside count the looks.
	outside, inside int
	service         *recall.Service
}

func newVillage(t *testing.T) *village {
	t.Helper()
	v := &village{House: recalltest.New(t, nil)}
	v.Follow(directory.New(v, stream.Namespaces{}, slog.New(slog.DiscardHandler)))
	v.directory = directory.NewQueries(v.DB, nil, v, nil, nil)
	v.service = recall.New(recall.Config{DB: v.DB, Index: v.Index, Blobs: v, Viewers: v})
	v.Append(stream.Registry, registry.ProjectCreated{ProjectID: v.Project.ID, Slug: v.Project.Slug, Namespace: stream.Namespace{ID: v.Project.Namespace}, CreatedAt: v.Now})
	return v
}

// Wait implements directory.Waiter.
func (v *village) Wait(context.Context, eventstore.Position, ...string) error { return v.stopped }

// Stopped implements directory.Waiter.
func (v *village) Stopped(context.Context, string) error { return v.stopped }

// View implements recall.Viewers.
func (v *village) View(ctx context.Context, project auth.Project, identity string) (directory.View, error) {
	v.outside++
	view, err := v.directory.View(ctx, project, identity)
	if v.meanwhile != nil {
		v.meanwhile()
	}
	return view, err
}

// ViewIn implements recall.Viewers.
func (v *village) ViewIn(ctx context.Context, tx directory.Snapshot, project auth.Project, identity string) (directory.View, error) {
	v.inside++
	return v.directory.ViewIn(ctx, tx, project, identity)
}

func (v *village) member(name string) uuid.UUID { return stream.IdentityID(v.Project.Namespace, name) }

// appear makes the record of an identity with traits.
func (v *village) appear(name string, traits map[string]string) {
	v.Append(stream.Name(stream.Identity, v.member(name)), identity.TraitsReplaced{ProjectID: v.Project.ID, Record: identity.Record{
		Identity: name, Traits: identity.Traits{Inline: traits}, Origin: identity.OriginAPI, CreatedAt: v.Now, UpdatedAt: v.Now,
	}})
}

// fix puts a fixed audience, rule one that reaches who has a trait.
func (v *village) fix(id uuid.UUID, members ...string) {
	put := audience.Put{ProjectID: v.Project.ID, AudienceID: id, Slug: "a-" + id.String()[:8], Kind: audience.KindFixed, CreatedAt: v.Now, PutAt: v.Now}
	for _, name := range members {
		put.Members = append(put.Members, v.member(name))
	}
	v.Append(stream.Name(stream.Audiences, v.Project.ID), put)
}

func (v *village) rule(id uuid.UUID, o audience.Operator) {
	v.Append(stream.Name(stream.Audiences, v.Project.ID), audience.Put{
		ProjectID: v.Project.ID, AudienceID: id, Slug: "r-" + id.String()[:8], Kind: audience.KindRule, CreatedAt: v.Now, PutAt: v.Now,
		Rule: &audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{{Trait: "team", Operator: o, Values: []string{}}}},
	})
}

// recalls is what an identity recalls of apples, and how often it was looked at.
func (v *village) recalls(t *testing.T, name string) (list []string, outside, inside int) {
	t.Helper()
	v.CatchUp()
	v.outside, v.inside = 0, 0
	page, err := v.service.Recall(t.Context(), recall.Query{Project: v.Project, Text: "apples", Identity: name, Limit: 100, Budget: 8000})
	if err != nil {
		t.Fatal(err)
	}
	list = contents(page)
	return list, v.outside, v.inside
}

func (v *village) send(id, content string, to uuid.UUID) {
	v.Send(recalltest.Point{ID: id, Content: content, OccurredAt: at(1), Audience: to})
}

func TestRecallReachesWhatTheIdentityReaches(t *testing.T) {
	v := newVillage(t)
	staff, team, none := uuid.New(), uuid.New(), uuid.New()
	v.appear("ana", map[string]string{"team": "blue"})
	v.appear("bo", nil)
	v.fix(staff, "bo")
	v.rule(team, audience.Exists)
	v.rule(none, audience.DoesNotExist)
	v.send("all", "apples for all", uuid.Nil)
	v.send("staff", "apples of staff", staff)
	v.send("team", "apples of the team", team)
	v.send("none", "apples of the others", none)
	for name, want := range map[string][]string{
		"ana": {"apples for all", "apples of the team"}, "bo": {"apples for all", "apples of staff", "apples of the others"},
		"nobody knows": {"apples for all"},
	} {
		got, outside, inside := v.recalls(t, name)
		if !same(got, want) || outside != 1 || inside != 0 {
			t.Errorf("%s: %q after %d and %d looks, want %q", name, got, outside, inside, want)
		}
	}
	v.stopped = errors.New("stands still")
	_, err := v.service.Recall(t.Context(), recall.Query{Project: v.Project, Text: "apples", Identity: "ana", Limit: 100, Budget: 8000})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeServiceUnavailable {
		t.Errorf("while the directory is stopped: %v", err)
	}
}

// same reports whether two lists hold the same, in any order.
func same(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// What came into an audience after the reader had left it was never for the reader, whenever the reader began to ask.
func TestNoAnswerMixesWhoReadsWithWhatCameLater(t *testing.T) {
	for name, c := range map[string]struct {
		// leave takes ana out of the audience, by a means of its own.
		begin, leave func(v *village, id uuid.UUID)
	}{
		"taken off the list": {
			func(v *village, id uuid.UUID) { v.fix(id, "ana") }, func(v *village, id uuid.UUID) { v.fix(id) },
		},
		"removed": {
			func(v *village, id uuid.UUID) { v.fix(id, "ana") }, func(v *village, _ uuid.UUID) {
				v.Append(stream.Name(stream.Identity, v.member("ana")), identity.Removed{ProjectID: v.Project.ID, RemovedAt: v.Now})
			},
		},
		"without the trait": {
			func(v *village, id uuid.UUID) { v.rule(id, audience.Exists) }, func(v *village, _ uuid.UUID) { v.appear("ana", nil) },
		},
		"with another rule": {
			func(v *village, id uuid.UUID) { v.rule(id, audience.Exists) }, func(v *village, id uuid.UUID) { v.rule(id, audience.DoesNotExist) },
		},
		"with an audience that is gone": {
			func(v *village, id uuid.UUID) { v.fix(id, "ana") }, func(v *village, id uuid.UUID) {
				v.Append(stream.Name(stream.Audiences, v.Project.ID), audience.Removed{ProjectID: v.Project.ID, AudienceID: id, RemovedAt: v.Now})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVillage(t)
			id := uuid.New()
			v.appear("ana", map[string]string{"team": "blue"})
			c.begin(v, id)
			v.send("early", "apples that ana may know", id)
			if got, _, _ := v.recalls(t, "ana"); len(got) != 1 {
				t.Fatalf("before: %q", got)
			}
			v.meanwhile = func() {
				v.meanwhile = nil
				c.leave(v, id)
				v.CatchUp()
				v.send("late", "apples that ana may not know", id)
				v.CatchUp()
			}
			if got, outside, inside := v.recalls(t, "ana"); len(got) != 0 || outside != 2 || inside != 0 {
				t.Errorf("%q after %d and %d looks", got, outside, inside)
			}
		})
	}
}

func TestARecallAmongChangesThatDoNotEndIsAnsweredInOneSnapshot(t *testing.T) {
	v := newVillage(t)
	id, other := uuid.New(), uuid.New()
	v.appear("ana", map[string]string{"team": "blue"})
	v.fix(id, "ana")
	v.send("mine", "apples of ana", id)
	v.meanwhile = func() {
		v.fix(other)
		v.CatchUp()
	}
	if got, outside, inside := v.recalls(t, "ana"); !same(got, []string{"apples of ana"}) || outside != 3 || inside != 1 {
		t.Errorf("%q after %d and %d looks", got, outside, inside)
	}
	if n := v.DB.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are still held", n)
	}
	// Who appears while they ask, too.
	name := ""
	v.meanwhile = func() { v.appear(name, nil); v.CatchUp() }
	name = "new"
	if got, outside, inside := v.recalls(t, "new"); len(got) != 0 || outside != 2 || inside != 0 {
		t.Errorf("%q after %d and %d looks", got, outside, inside)
	}
}
