package recall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/rawjson"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testMain{m}, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

type testMain struct{ m *testing.M }

func (m testMain) Run() int { return pgtest.Run(m.m) }

func at(day int) time.Time { return time.Date(2025, 5, day, 9, 0, 0, 0, time.UTC) }

// contents returns the contents of results, in order.
func contents(page recall.Response) []string {
	list := []string{}
	for _, r := range page.Results {
		list = append(list, r.Content)
	}
	return list
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestRecall_SourceAsSent(t *testing.T) {
	h := recalltest.New(t, nil)
	content := "Ana moved the launch\x00 to 3 June.\n\n  <b>Helix</b> & \u2028 done"
	h.Send(recalltest.DataPoint{ID: "call/1", Content: content, Label: "Weekly call", Author: "ana", OccurredAt: at(12), Metadata: json.RawMessage(`{"b":1.50,"a":null,"a":[1e400]}`)})
	h.Send(recalltest.DataPoint{ID: "null", Content: "Launch of the rocket", OccurredAt: at(13), Metadata: json.RawMessage(`null`)})
	h.Send(recalltest.DataPoint{ID: "other", Content: "Nothing of interest", OccurredAt: at(13)})
	h.CatchUp()
	page := h.Recall(h.Ask("When is the launch?"))
	node := datapoint.NodeID(h.DataPoint("call/1"), 1)
	label := "Weekly call"
	want := recall.Result{
		ID: node, OccurredAt: at(12), Content: content, Artifact: recall.Artifact{
			ID: node, Kind: "source",
			OccurredAt: at(12),
		},
		Sources: []recall.Source{{SourceID: "call/1", OccurredAt: at(12), Label: &label, Metadata: json.RawMessage(`{"b":1.50,"a":null,"a":[1e400]}`), Excerpts: []string{}}},
	}
	if len(page.Results) != 2 {
		t.Fatalf("%d results", len(page.Results))
	}
	for _, r := range page.Results {
		if r.Sources[0].SourceID == "call/1" {
			want.Rank = r.Rank
			equal(t, "result", r, want)
		} else {
			equal(t, "metadata", string(r.Sources[0].Metadata), "null")
			if r.Sources[0].Label != nil {
				t.Error("a label that was not sent")
			}
		}
	}
	equal(t, "tokens", page.UsedEvidenceTokens, domainrecall.Tokens(content)+domainrecall.Tokens("Launch of the rocket"))
	equal(t, "as of", page.AsOf, h.Now)
	empty := h.Recall(h.Ask("zebra"))
	if empty.Results == nil || len(empty.Results) > 0 {
		t.Errorf("results %#v, want an empty list", empty.Results)
	}
}

func TestGate_DeletedAndForbidden(t *testing.T) {
	h := recalltest.New(t, nil)
	team := uuid.New()
	h.Send(recalltest.DataPoint{ID: "gone", Content: "helix gone", OccurredAt: at(1)})
	h.Derive("gone", 1, at(1), false,
		recalltest.Line{Kind: "claim", Content: "helix is gone", Subject: "helix", Attribute: "state"})
	h.Send(recalltest.DataPoint{ID: "moved", Content: "helix moved", OccurredAt: at(2)})
	h.Derive("moved", 1, at(2), false,
		recalltest.Line{Kind: "claim", Content: "helix is moved", Subject: "helix", Attribute: "state"})
	h.Send(recalltest.DataPoint{ID: "kept", Content: "helix kept", OccurredAt: at(3)})
	h.CatchUp()
	if n := len(h.Recall(h.Ask("helix")).Results); n < 3 {
		t.Fatalf("%d results before", n)
	}
	h.Delete("gone")
	h.Send(recalltest.DataPoint{ID: "moved", Content: "helix moved", Audience: team})
	// The index has not applied it yet.
	h.CatchUp("datapoints", "memories")
	equal(t, "after a stale index", contents(h.Recall(h.Ask("helix gone moved"))), []string{"helix kept"})
	// The projection of memories may lag, too.
	h.CatchUp("recallindex")
	equal(t, "after a fresh index", contents(h.Recall(h.Ask("helix gone moved"))), []string{"helix kept"})
	q := h.Ask("helix")
	q.Audiences = []uuid.UUID{uuid.Nil, team}
	found := strings.Join(contents(h.Recall(q)), "; ")
	if !strings.Contains(found, "helix moved") {
		t.Errorf("the team does not find what was moved to it: %s", found)
	}
	q.Audiences = nil
	equal(t, "of nobody", contents(h.Recall(q)), []string{})
}

// lyingIndex is an index that finds what it is given.
type lyingIndex struct {
	recallindex.Index
	hits []recallindex.Key
}

func (l *lyingIndex) Search(_ context.Context, q recallindex.Query) (found recallindex.Found, err error) {
	for _, part := range q.Parts() {
		f := found.Of(part.Part)
		f.Statistics = domainrecall.Statistics{Docs: 1, Frequencies: make([]domainrecall.Count, len(q.Terms))}
		for _, k := range l.hits {
			if k.Part() == part.Part && len(f.Hits) < part.Size {
				f.Hits = append(f.Hits, recallindex.Hit{Key: k, Counts: make([]domainrecall.Count, len(q.Terms)), Length: 1})
			}
		}
		for _, h := range f.Hits {
			h.Counts[0].Text = 5
		}
	}
	return found, nil
}

func (l *lyingIndex) Apply(context.Context, []recallindex.Change) error { return nil }
func (l *lyingIndex) Generation() string                                { return "liar" }
func (l *lyingIndex) Analysis() int                                     { return domainrecall.NewAnalyzer().Version() }

func TestGate_LyingIndex(t *testing.T) {
	l := new(lyingIndex)
	h := recalltest.New(t, l)
	team := uuid.New()
	h.Send(recalltest.DataPoint{ID: "live", Content: "helix live", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "team", Content: "helix secret", OccurredAt: at(1), Audience: team})
	h.Send(recalltest.DataPoint{ID: "future", Content: "helix future", OccurredAt: at(20)})
	h.Send(recalltest.DataPoint{ID: "gone", Content: "helix gone", OccurredAt: at(1)})
	var memories []uuid.UUID
	for _, id := range []string{"live", "team", "future", "gone"} {
		when := at(1)
		if id == "future" {
			when = at(20)
		}
		memories = append(memories, h.Derive(id, 1, when, false, recalltest.Line{Kind: "rule", Content: "rule of " + id})...)
	}
	old := h.Derive("live", 1, at(1), false, recalltest.Line{Kind: "rule", Content: "rule of live"})
	h.Send(recalltest.DataPoint{ID: "revised", Content: "helix of old", OccurredAt: at(1)})
	old = append(old, h.Derive("revised", 1, at(1), false, recalltest.Line{Kind: "rule", Content: "rule of old"})...)
	h.Send(recalltest.DataPoint{ID: "revised", Content: "something else", OccurredAt: at(5)}) // in no conversation
	h.Derive("revised", 2, at(1), false)
	h.Delete("gone")
	h.CatchUp()
	other := h.Project
	h.Project.ID = uuid.New()
	h.Send(recalltest.DataPoint{ID: "foreign", Content: "helix foreign", OccurredAt: at(1)})
	h.CatchUp()
	h.Project = other
	for _, id := range []string{"gone", "team", "future", "foreign", "never"} {
		for revision := range 4 {
			l.hits = append(l.hits, recallindex.Key{DataPoint: h.DataPoint(id), Revision: revision})
		}
		l.hits = append(l.hits, recallindex.Key{DataPoint: h.DataPoint("live"), Revision: 1, Memory: uuid.New()})
	}
	for i, m := range append(memories, old...) {
		for _, id := range []string{"live", "gone", "team", "revised"} {
			l.hits = append(l.hits, recallindex.Key{DataPoint: h.DataPoint(id), Revision: i, Memory: m})
		}
	}
	l.hits = append(l.hits, recallindex.Key{DataPoint: h.DataPoint("live"), Revision: 1})
	q := h.Ask("helix")
	when := at(10)
	q.At = &when
	equal(t, "page", contents(h.Recall(q)), []string{"rule of live", "helix live"})
}

func TestRecall_IndexHasAnOlderRevision(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "a", Content: "the editor is vim", OccurredAt: at(1)})
	h.Send(recalltest.DataPoint{ID: "b", Content: "the editor is vim too", OccurredAt: at(1)})
	h.CatchUp()
	h.Send(recalltest.DataPoint{ID: "a", Content: "the editor is helix now"})
	h.Send(recalltest.DataPoint{ID: "b", Content: "the cake is baked"})
	h.CatchUp("datapoints", "memories")
	equal(t, "editor", contents(h.Recall(h.Ask("editor"))), []string{"the editor is helix now"})
	h.CatchUp()
	equal(t, "editor", contents(h.Recall(h.Ask("editor"))), []string{"the editor is helix now"})
	equal(t, "vim", contents(h.Recall(h.Ask("vim"))), []string{})
	equal(t, "cake", contents(h.Recall(h.Ask("cake"))), []string{"the cake is baked"})
}

func TestGate_Superseded(t *testing.T) {
	h := recalltest.New(t, nil)
	team := uuid.New()
	claim := func(id, editor string, day int, audience uuid.UUID) {
		h.Send(recalltest.DataPoint{
			ID: id, Content: "My favourite editor is " + editor + ".", OccurredAt: at(day),
			Audience: audience,
		})
		h.Derive(id, 1, at(day), false, recalltest.Line{
			Kind: "claim", Content: "Ana's favourite editor is " + editor,
			Excerpt: "My favourite editor is " + editor + ".", Subject: "ana", Attribute: "favourite editor",
		})
	}
	claim("1", "Vim", 1, uuid.Nil)
	claim("2", "Emacs", 5, team)
	claim("3", "Helix", 9, uuid.Nil)
	for n := range 20 {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint("filler", n), Content: fmt.Sprint("Ana met a favourite editor of mine ", n),
			OccurredAt: at(2),
		})
	}
	h.CatchUp()
	superseded := func(q recall.Query) map[string]string {
		found := map[string]string{}
		for _, r := range h.Recall(q).Results {
			if r.Artifact.Kind != "claim" {
				continue
			}
			equal(t, "excerpt", r.Sources[0].Excerpts,
				[]string{"My favourite editor is " + r.Content[len("Ana's favourite editor is "):] + "."})
			when := ""
			if r.Artifact.SupersededAt != nil {
				when = r.Artifact.SupersededAt.Format(time.DateOnly)
			}
			found[r.Content] = when
		}
		return found
	}
	q := h.Ask("Ana's favourite editor")
	equal(t, "by the project", superseded(q), map[string]string{
		"Ana's favourite editor is Vim":   "2025-05-09",
		"Ana's favourite editor is Helix": "",
	})
	q.Audiences = []uuid.UUID{uuid.Nil, team}
	equal(t, "by the team", superseded(q), map[string]string{
		"Ana's favourite editor is Vim": "2025-05-05", "Ana's favourite editor is Emacs": "2025-05-09", "Ana's favourite editor is Helix": "",
	})
	before := at(8)
	q.At = &before
	equal(t, "before the third", superseded(q), map[string]string{
		"Ana's favourite editor is Vim":   "2025-05-05",
		"Ana's favourite editor is Emacs": "",
	})
	q.At = nil
	h.Delete("3")
	h.CatchUp()
	equal(t, "without the third", superseded(q), map[string]string{
		"Ana's favourite editor is Vim":   "2025-05-05",
		"Ana's favourite editor is Emacs": "",
	})
	// A later revision without the claim supersedes nothing.
	h.Send(recalltest.DataPoint{ID: "2", Content: "I have no favourite.", Audience: team})
	h.Derive("2", 2, at(5), false)
	h.CatchUp()
	equal(t, "without the second", superseded(q), map[string]string{"Ana's favourite editor is Vim": ""})
}

func TestGate_Windows(t *testing.T) {
	h := recalltest.New(t, nil)
	for day := 1; day <= 9; day++ {
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(day), Content: fmt.Sprint("helix on day ", day), OccurredAt: at(day)})
	}
	h.CatchUp()
	cases := []struct {
		from, to, at int
		want         []string
	}{
		{0, 0, 0, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}},
		{3, 5, 0, []string{"3", "4", "5"}},
		{0, 2, 0, []string{"1", "2"}},
		{8, 0, 0, []string{"8", "9"}},
		{2, 9, 3, []string{"2", "3"}},
		{0, 0, 1, []string{"1"}},
	}
	for _, c := range cases {
		q := h.Ask("helix")
		q.Chronological = true
		instant := func(day int) *time.Time {
			if day == 0 {
				return nil
			}
			when := at(day)
			return &when
		}
		q.From, q.To, q.At = instant(c.from), instant(c.to), instant(c.at)
		var got []string
		page := h.Recall(q)
		ranks := map[int]bool{}
		for _, r := range page.Results {
			got = append(got, r.Sources[0].SourceID)
			ranks[r.Rank] = true
		}
		equal(t, fmt.Sprint(c), got, c.want)
		for rank := 1; rank <= len(page.Results); rank++ {
			if !ranks[rank] {
				t.Errorf("%v: rank %d is missing", c, rank)
			}
		}
	}
	// One microsecond outside is outside.
	q := h.Ask("helix")
	from, to := at(3).Add(time.Microsecond), at(5).Add(-time.Microsecond)
	q.From, q.To = &from, &to
	equal(t, "inside", contents(h.Recall(q)), []string{"helix on day 4"})
}

func TestGate_ClockAhead(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Now = h.Now.Add(time.Minute)
	accepted := h.Now
	h.Send(recalltest.DataPoint{ID: "1", Content: "helix"})
	h.Now = h.Now.Add(-time.Minute)
	h.CatchUp()
	page := h.Recall(h.Ask("helix"))
	equal(t, "results", contents(page), []string{"helix"})
	equal(t, "as of", page.AsOf, accepted)
}

func TestRecall_SourceTooLong(t *testing.T) {
	h := recalltest.New(t, nil)
	long := strings.Repeat("Nothing to see here, move along. ", 2000) + "\n\nThe password of the vault is swordfish."
	for _, big := range []bool{false, true} {
		id := fmt.Sprint("long", big)
		h.Send(recalltest.DataPoint{ID: id, Content: long + id, OccurredAt: at(1), Big: big, Metadata: json.RawMessage(`{"big":true}`)})
		h.Derive(id, 1, at(1), big, recalltest.Line{
			Kind: "claim", Content: "The vault's password is swordfish",
			Excerpt: "The password of the vault is swordfish.", Subject: "vault", Attribute: "password",
		})
	}
	h.Send(recalltest.DataPoint{ID: "short", Content: "The vault is in the cellar", OccurredAt: at(2)})
	h.CatchUp()
	q := h.Ask("password of the vault")
	page := h.Recall(q)
	equal(t, "page", contents(page),
		[]string{"The vault's password is swordfish", "The vault's password is swordfish", "The vault is in the cellar"})
	equal(t, "metadata", string(page.Results[0].Sources[0].Metadata), `{"big":true}`)
	q.Budget = 32000
	page = h.Recall(q)
	if page.Results[0].Artifact.Kind != "source" && page.Results[1].Artifact.Kind != "source" {
		t.Errorf("a budget of %d does not hold %d tokens", q.Budget, domainrecall.Tokens(long))
	}
}

func TestRecall_BlobGone(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "a", Content: "helix in a blob", OccurredAt: at(1), Big: true})
	h.Send(recalltest.DataPoint{ID: "b", Content: "helix inline", OccurredAt: at(2)})
	h.CatchUp()
	equal(t, "before", len(h.Recall(h.Ask("helix")).Results), 2)
	state, _ := h.State("a")
	events, err := h.Store.Read(t.Context(), stream.Name(stream.DataPoint, h.DataPoint("a")), 0, 0, 1)
	if err != nil || state == nil {
		t.Fatal(err)
	}
	e, err := h.Codec.Decode(events[0])
	if err != nil {
		t.Fatal(err)
	}
	name := e.(*datapoint.RevisionAccepted).Content.Blob.Stream
	if _, err := h.Store.Tombstone(t.Context(), name, 1); err != nil {
		t.Fatal(err)
	}
	equal(t, "after", contents(h.Recall(h.Ask("helix"))), []string{"helix inline"})
}

func TestRecall_ManyPassagesOfOneSource(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{
		ID:         "book",
		Content:    strings.Repeat("Helix helix helix helix helix helix. "+strings.Repeat("word ", 150)+"\n\n", 500),
		OccurredAt: at(1),
	})
	var want []string
	for n := range 30 {
		content := fmt.Sprint("A long note, mostly about other matters than helix, number ", n)
		h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: content, OccurredAt: at(2 + n%5)})
		want = append(want, content)
	}
	h.CatchUp()
	notes, passages := 0, 0
	for _, r := range h.Recall(h.Ask("helix")).Results {
		if r.Sources[0].SourceID == "book" {
			passages++
		} else {
			notes++
		}
	}
	equal(t, "notes", notes, len(want))
	equal(t, "passages of the book", passages, 3)
}

// FuzzQuery reads any body as a recall: what is accepted keeps every limit, and what is refused
// is a fault of the caller.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		`{"query":"tea","identity":"ana"}`, `{"query":"tea","identity":"ana","limit":1e2,"maxTokens":1e999,"sort":"chronological"}`,
		`{"query":"tea","identity":"ana","level":"high","occurredFrom":"2026-W01-1","occurredTo":"2026-002"}`, `{"query":7,"identity":"ana","sort":"x"}`,
		`{"query":"tea","identity":"ana","limit":-0,"maxTokens":-0.0}`, `{"query":"\u2003","identity":"\u0000"}`, `[]`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if rawjson.Check(body) != nil {
			return
		}
		q, err := recall.ParseQuery(body)
		if err != nil {
			if told, ok := errors.AsType[*fault.Error](err); !ok || told.Kind != fault.Invalid || told.Msg == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		identity := utf8.RuneCountInString(q.Identity)
		switch {
		case strings.TrimSpace(q.Text) == "", strings.TrimSpace(q.Identity) == "", identity > 200,
			strings.ContainsRune(q.Identity, 0):
			t.Fatalf("query %q of %q", q.Text, q.Identity)
		case q.Limit < 1, q.Limit > 200, q.Budget < 1, q.Budget > 32000:
			t.Fatalf("limit %d, budget %d", q.Limit, q.Budget)
		case q.From != nil && q.To != nil && q.From.After(*q.To):
			t.Fatalf("from %s to %s", q.From, q.To)
		case len(q.Audiences) != 0: // what the identity reaches is found where it is searched
			t.Fatalf("audiences %v", q.Audiences)
		}
	})
}

// The days that a query names are those of the zone of queryTimestamp.
func TestParseQuery_ZoneOfQueryTimestamp(t *testing.T) {
	for text, offset := range map[string]int{
		"2025-05-12T23:30:00-07:00": -7 * 3600, "2025-05-12T23:30:00+05:45": 5*3600 + 45*60,
		"2025-05-12T23:30:00Z": 0, "2025-05-12T23:30": 0, "2025-05-12": 0,
	} {
		q, err := recall.ParseQuery([]byte(`{"query":"tea","identity":"ana","queryTimestamp":"` + text + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := q.At.Zone(); got != offset || q.At.Day() != 12 {
			t.Errorf("%s: read as %s", text, q.At)
		}
	}
}
