package recall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// viewerFixture is a harness with viewers.
type viewerFixture struct {
	*recalltest.Harness
	directory *directory.Queries
	// stopped is why the directory is stopped; meanwhile runs after each read of the reach before the
	// snapshot.
	stopped   error
	meanwhile func()
	// outside and inside count the reads of the reach before and in the snapshot.
	outside, inside int
	service         *recall.Service
}

func newViewerFixture(t *testing.T) *viewerFixture {
	t.Helper()
	v := &viewerFixture{Harness: recalltest.New(t, nil)}
	namespaces, stored := stream.NewNamespaces(make([]byte, 32)), uuid.New()
	var err error
	if v.Project.Namespace, err = namespaces.Of(stored); err != nil {
		t.Fatal(err)
	}
	v.AddProjector(directory.New(v, namespaces, slog.New(slog.DiscardHandler)))
	v.directory = directory.NewQueries(v.DB, nil, v, nil, nil)
	config := v.Config()
	config.Viewers, config.Now = v, time.Now
	v.service = recall.New(config)
	v.Append(stream.Registry, registry.ProjectCreated{
		ProjectID: v.Project.ID, Slug: v.Project.Slug,
		Namespace: stored, CreatedAt: v.Now,
	})
	return v
}

// Wait implements directory.Waiter.
func (v *viewerFixture) Wait(context.Context, eventstore.Position, ...string) error { return v.stopped }

// Stopped implements directory.Waiter.
func (v *viewerFixture) Stopped(context.Context, string) error { return v.stopped }

// Reach implements recall.Viewers.
func (v *viewerFixture) Reach(ctx context.Context, project auth.Project, identity string) (directory.Reach, error) {
	v.outside++
	view, err := v.directory.Reach(ctx, project, identity)
	if v.meanwhile != nil {
		v.meanwhile()
	}
	return view, err
}

// ReachIn implements recall.Viewers.
func (v *viewerFixture) ReachIn(
	ctx context.Context, tx directory.Snapshot, project auth.Project, identity string,
) (directory.Reach, error) {
	v.inside++
	return v.directory.ReachIn(ctx, tx, project, identity)
}

func (v *viewerFixture) member(name string) uuid.UUID {
	return stream.IdentityID(v.Project.Namespace, name)
}

// ensureIdentity makes the record of an identity with traits.
func (v *viewerFixture) ensureIdentity(name string, traits map[string]string) {
	v.Append(stream.Name(stream.Identity, v.member(name)), identity.TraitsReplaced{
		ProjectID: v.Project.ID,
		Record: identity.Record{
			Identity: name, Traits: identity.Traits{Inline: traits}, Origin: identity.OriginAPI, CreatedAt: v.Now,
			UpdatedAt: v.Now,
		},
	})
}

// fix sets a fixed audience, rule one whose members have a trait.
func (v *viewerFixture) fix(id uuid.UUID, members ...string) {
	put := audience.Put{
		ProjectID: v.Project.ID, AudienceID: id, Slug: "a-" + id.String()[:8], Kind: audience.KindFixed,
		CreatedAt: v.Now, PutAt: v.Now,
	}
	for _, name := range members {
		put.Members = append(put.Members, v.member(name))
	}
	v.Append(stream.Name(stream.Audiences, v.Project.ID), put)
}

func (v *viewerFixture) rule(id uuid.UUID, o audience.Operator) {
	v.Append(stream.Name(stream.Audiences, v.Project.ID), audience.Put{
		ProjectID: v.Project.ID, AudienceID: id, Slug: "r-" + id.String()[:8], Kind: audience.KindRule, CreatedAt: v.Now,
		PutAt: v.Now,
		Rule: &audience.Rule{Match: audience.MatchAll, Conditions: []audience.Condition{{
			Trait: "team", Operator: o,
			Values: []string{},
		}}},
	})
}

// recalls is what an identity recalls of apples, and how often its reach was read.
func (v *viewerFixture) recalls(t *testing.T, name string) (list []string, outside, inside int) {
	t.Helper()
	v.CatchUp()
	v.outside, v.inside = 0, 0
	page, err := v.service.Recall(t.Context(),
		recall.Query{Project: v.Project, Text: "apples", Identity: name, Limit: 100, Budget: 8000})
	if err != nil {
		t.Fatal(err)
	}
	list = contents(page)
	return list, v.outside, v.inside
}

func (v *viewerFixture) send(id, content string, to uuid.UUID) {
	v.Send(recalltest.DataPoint{ID: id, Content: content, OccurredAt: at(1), Audience: to})
}

func TestRecall_ReachOfTheIdentity(t *testing.T) {
	v := newViewerFixture(t)
	staff, team, none := uuid.New(), uuid.New(), uuid.New()
	v.ensureIdentity("ana", map[string]string{"team": "blue"})
	v.ensureIdentity("bo", nil)
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
	v.stopped = errors.New("stopped")
	_, err := v.service.Recall(t.Context(),
		recall.Query{Project: v.Project, Text: "apples", Identity: "ana", Limit: 100, Budget: 8000})
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != fault.CodeServiceUnavailable {
		t.Errorf("while the directory is stopped: %v", err)
	}
}

// same reports whether two lists have the same elements, in any order.
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

// What entered an audience after the viewer had left it is not for the viewer, whenever the recall
// began.
func TestRecall_ReachChangesDuringTheSearch(t *testing.T) {
	for name, c := range map[string]struct {
		// leave takes ana out of the audience.
		begin, leave func(v *viewerFixture, id uuid.UUID)
	}{
		"taken off the list": {
			func(v *viewerFixture, id uuid.UUID) { v.fix(id, "ana") }, func(v *viewerFixture, id uuid.UUID) { v.fix(id) },
		},
		"removed": {func(v *viewerFixture, id uuid.UUID) { v.fix(id, "ana") }, func(v *viewerFixture, _ uuid.UUID) {
			v.Append(stream.Name(stream.Identity, v.member("ana")), identity.Removed{ProjectID: v.Project.ID, RemovedAt: v.Now})
		}},
		"without the trait": {
			func(v *viewerFixture, id uuid.UUID) { v.rule(id, audience.Exists) },
			func(v *viewerFixture, _ uuid.UUID) { v.ensureIdentity("ana", nil) },
		},
		"with another rule": {
			func(v *viewerFixture, id uuid.UUID) { v.rule(id, audience.Exists) },
			func(v *viewerFixture, id uuid.UUID) { v.rule(id, audience.DoesNotExist) },
		},
		"with an audience that is gone": {
			func(v *viewerFixture, id uuid.UUID) { v.fix(id, "ana") }, func(v *viewerFixture, id uuid.UUID) {
				v.Append(stream.Name(stream.Audiences, v.Project.ID),
					audience.Removed{ProjectID: v.Project.ID, AudienceID: id, RemovedAt: v.Now})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newViewerFixture(t)
			id := uuid.New()
			v.ensureIdentity("ana", map[string]string{"team": "blue"})
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

func TestRecall_ReachKeepsChanging(t *testing.T) {
	v := newViewerFixture(t)
	id, other := uuid.New(), uuid.New()
	v.ensureIdentity("ana", map[string]string{"team": "blue"})
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
	// The identity may be recorded during the recall, too.
	name := ""
	v.meanwhile = func() { v.ensureIdentity(name, nil); v.CatchUp() }
	name = "new"
	if got, outside, inside := v.recalls(t, "new"); len(got) != 0 || outside != 2 || inside != 0 {
		t.Errorf("%q after %d and %d looks", got, outside, inside)
	}
}

// What is private to a record is recalled as its identity alone, and not by a later record of the same name. An
// audience of the project does not share it, whatever its slug and members are.
func TestRecall_PrivateToARecord(t *testing.T) {
	v := newViewerFixture(t)
	v.ensureIdentity("ana", nil)
	v.ensureIdentity("ben", nil)
	own := stream.PrivateAudienceID(v.member("ana"), v.Now)
	me := uuid.New()
	v.Append(stream.Name(stream.Audiences, v.Project.ID), audience.Put{
		ProjectID: v.Project.ID, AudienceID: me, Slug: "me", Kind: audience.KindFixed, CreatedAt: v.Now, PutAt: v.Now,
		Members: []uuid.UUID{v.member("ben")},
	})
	v.send("all", "apples for all", uuid.Nil)
	v.send("me", "apples of those named me", me)
	v.send("own", "apples of ana alone", own)
	wants := func(name string, want ...string) {
		t.Helper()
		if got, _, _ := v.recalls(t, name); !same(got, want) {
			t.Errorf("%s recalls %q, want %q", name, got, want)
		}
	}
	wants("ana", "apples for all", "apples of ana alone")
	wants("ben", "apples for all", "apples of those named me")
	wants("nobody knows", "apples for all")

	v.Append(stream.Name(stream.Identity, v.member("ana")), identity.Removed{ProjectID: v.Project.ID, RemovedAt: v.Now})
	wants("ana", "apples for all")
	v.Now = v.Now.Add(time.Second)
	v.ensureIdentity("ana", nil)
	wants("ana", "apples for all")
	v.send("again", "apples of the new ana", stream.PrivateAudienceID(v.member("ana"), v.Now))
	wants("ana", "apples for all", "apples of the new ana")
	wants("ben", "apples for all", "apples of those named me")
}

// redactionFixture is a data point of the board whose first text names a salary.
type redactionFixture struct {
	*recalltest.Harness
	t     *testing.T
	board uuid.UUID
}

func newRedactionFixture(t *testing.T) *redactionFixture {
	r := &redactionFixture{Harness: recalltest.New(t, nil), t: t, board: uuid.New()}
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.Derive("minutes", 1, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is 90000",
		Excerpt: "The salary of Dora is 90000.", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp()
	return r
}

// publish sends the text without the salary, project-visible.
func (r *redactionFixture) publish() {
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1)})
	r.CatchUp()
}

// sees is what a viewer recalls who reaches these audiences.
func (r *redactionFixture) sees(audiences ...uuid.UUID) string {
	q := r.Ask("What is the salary of Dora? 90000")
	q.Audiences = append([]uuid.UUID{uuid.Nil}, audiences...)
	var all []string
	for _, result := range r.Recall(q).Results {
		all = append(all, result.Content+" "+strings.Join(result.Sources[0].Excerpts, " "))
	}
	return strings.Join(all, "; ")
}

func (r *redactionFixture) want(secret bool, audiences ...uuid.UUID) {
	r.t.Helper()
	if got := r.sees(audiences...); strings.Contains(got, "90000") != secret {
		r.t.Errorf("%d audiences see %q, want the salary: %v", len(audiences), got, secret)
	}
}

func TestGate_RedactedAndWidenedWithoutDerivation(t *testing.T) {
	r := newRedactionFixture(t)
	r.want(false)
	r.want(true, r.board)
	r.publish()
	r.want(false)
	if got := r.sees(); !strings.Contains(got, "settled") {
		t.Errorf("the new text is not found: %q", got)
	}
	r.want(true, r.board) // no derivation: the memory stays the newest for its old viewers
}

func TestGate_RedactedAndWidenedWhileDerivationFails(t *testing.T) {
	r := newRedactionFixture(t)
	r.publish()
	name := stream.Name(stream.Memory, r.DataPoint("minutes"))
	state, _ := r.State("minutes")
	r.Append(name, memory.DerivationStarted{
		ProjectID: r.Project.ID, IngestionID: state.IngestionID, Revision: 2,
		Attempt: 1, StartedAt: r.Now,
	})
	r.CatchUp()
	r.want(false) // in flight
	r.want(true, r.board)
	r.Append(name, memory.Failed{
		ProjectID: r.Project.ID, IngestionID: state.IngestionID, Revision: 2, Attempt: 1, Code: ingestion.ContentRejected,
		Message: "refused", FailedAt: r.Now, Final: true,
	})
	r.CatchUp()
	r.want(false) // rejected
	r.want(true, r.board)
	r.Derive("minutes", 2, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is settled",
		Excerpt: "settled", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp()
	r.want(false)
	r.want(false, r.board) // the memory of the old text is historic
}

func TestGate_MoveOfTheSameTextWidens(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1)})
	r.CatchUp()
	r.want(true) // the text itself was made visible
	r.publish()
	r.want(true) // and it was visible when the next one came
}

func TestGate_NarrowedThenRedactedAndWidened(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1)})
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 90000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.CatchUp()
	r.want(false)
	r.publish()
	r.want(false)
	r.want(true, r.board)
}

func TestGate_RewrittenAndNarrowedThenWidened(t *testing.T) {
	r := newRedactionFixture(t)
	team := uuid.New()
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1),
		Audience: team,
	})
	r.CatchUp()
	r.want(false, team)
	r.want(false, r.board) // the newest audience is the team
	r.want(true, r.board, team)
	r.Send(recalltest.DataPoint{ID: "minutes", Content: "The salary of Dora is settled.", OccurredAt: at(1)})
	r.CatchUp()
	r.want(false)
	r.want(false, team)
	r.want(true, r.board)
}

// The tables of the two projections may be of different moments.
func TestGate_MemoryOfARevisionThatIsNotKnownYet(t *testing.T) {
	r := newRedactionFixture(t)
	r.Send(recalltest.DataPoint{
		ID: "minutes", Content: "The salary of Dora is 95000.", OccurredAt: at(1),
		Audience: r.board,
	})
	r.Derive("minutes", 2, at(1), false, recalltest.Line{
		Kind: "claim", Content: "Dora's salary is 95000",
		Excerpt: "95000", Subject: "dora", Attribute: "salary",
	})
	r.CatchUp("memories", "recallindex")
	if got := r.sees(r.board); strings.Contains(got, "95000") {
		t.Errorf("found %q", got)
	}
	r.CatchUp()
	if got := r.sees(r.board); !strings.Contains(got, "95000") {
		t.Errorf("found %q", got)
	}
}

// A claim that the viewer may not read reveals nothing about one that they may.
func TestGate_RedactedClaimSupersedesForItsOwnViewersOnly(t *testing.T) {
	h := recalltest.New(t, nil)
	board := uuid.New()
	claim := func(text string) recalltest.Line {
		return recalltest.Line{
			Kind: "claim", Content: "Dora's city is " + text, Excerpt: text, Subject: "dora",
			Attribute: "city",
		}
	}
	h.Send(recalltest.DataPoint{ID: "old", Content: "Dora lives in the city of Oslo.", OccurredAt: at(1)})
	h.Derive("old", 1, at(1), false, claim("Oslo"))
	h.Send(recalltest.DataPoint{ID: "new", Content: "Dora lives in the city of Rome.", OccurredAt: at(2), Audience: board})
	h.Derive("new", 1, at(2), false, claim("Rome"))
	for n := range 9 { // so that a response has room for several memories
		h.Send(recalltest.DataPoint{ID: fmt.Sprint("filler", n), Content: "Dora's city, not Oslo", OccurredAt: at(3)})
	}
	h.CatchUp()
	superseded := func(audiences ...uuid.UUID) bool {
		t.Helper()
		q := h.Ask("Which city is Dora's city? Oslo")
		q.Audiences = append([]uuid.UUID{uuid.Nil}, audiences...)
		for _, r := range h.Recall(q).Results {
			if r.Artifact.Kind != recall.KindSource && strings.Contains(r.Content, "Oslo") {
				return r.Artifact.SupersededAt != nil
			}
		}
		t.Fatal("the old claim is not found")
		return false
	}
	if superseded() || !superseded(board) {
		t.Fatal("before: superseded for those who may read it, and nobody else")
	}
	h.Send(recalltest.DataPoint{ID: "new", Content: "Dora has moved to another city.", OccurredAt: at(2)})
	h.CatchUp()
	if superseded() {
		t.Error("a claim that was left out supersedes for everybody")
	}
	if !superseded(board) {
		t.Error("it no longer supersedes for those who may read it")
	}
}
