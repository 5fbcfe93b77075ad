package datapoint_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

var (
	noon     = time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)
	evening  = noon.Add(6 * time.Hour)
	first    = uuid.MustParse("00000000-0000-4000-8000-000000000001")
	second   = uuid.MustParse("00000000-0000-4000-8000-000000000002")
	team     = uuid.MustParse("00000000-0000-4000-8000-00000000000a")
	oldLabel = "standup"
)

// stored is a data point at its first revision, stored at stream revision 0.
func stored(change ...func(*datapoint.State)) *datapoint.State {
	s := &datapoint.State{
		SourceID: "s", Revision: 1, LastNumber: 1, BodyAt: 0, Content: "aa", Metadata: "mm", Label: &oldLabel, OccurredAt: noon, IngestionID: first,
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// send is a re-send of the same content that omits everything else.
func send(change ...func(*datapoint.Ingest)) datapoint.Ingest {
	c := datapoint.Ingest{
		Send:     datapoint.Send{IngestionID: second, AcceptedAt: evening, CreditTenths: 10, Bytes: 2},
		SourceID: "s", ContentDigest: "aa", Content: datapoint.Text{Inline: "text"},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// by names the author of a send.
func by(author string) func(*datapoint.Ingest) {
	return func(c *datapoint.Ingest) { c.Author, c.AuthorID = author, first }
}

func TestDecide(t *testing.T) {
	label := "retro"
	storedMetadata := &datapoint.Text{Inline: `{"a":1}`}
	revision := func(number int, change ...func(*datapoint.State)) event.Event {
		after := stored(func(s *datapoint.State) {
			s.Revision, s.LastNumber, s.BodyAt, s.IngestionID = number, number, 5, second
		})
		for _, f := range change {
			f(after)
		}
		return &datapoint.RevisionAccepted{
			Send: send().Send, States: datapoint.States{Effect: *after},
			Body: datapoint.Body{Content: datapoint.Text{Inline: "text"}, Metadata: storedMetadata},
		}
	}
	free := send().Send
	free.CreditTenths = 0
	tests := []struct {
		name  string
		given *datapoint.State
		later *datapoint.State
		when  datapoint.Ingest
		then  event.Event
	}{
		{
			name: "first send: now is when it occurred",
			when: send(),
			then: &datapoint.RevisionAccepted{
				Send: send().Send,
				States: datapoint.States{Effect: datapoint.State{
					SourceID: "s", Revision: 1, LastNumber: 1, BodyAt: 5, Content: "aa", OccurredAt: evening, IngestionID: second,
				}},
				Body: datapoint.Body{Content: datapoint.Text{Inline: "text"}},
			},
		},
		{
			name: "identical content, everything else omitted", given: stored(), when: send(),
			then: &datapoint.Resent{Send: free, States: datapoint.States{Effect: *stored()}},
		},
		{
			name: "another author alone is unchanged, and not named", given: stored(), when: send(by("bo")),
			then: &datapoint.Resent{
				Send: free, States: datapoint.States{Effect: *stored()}, Sender: datapoint.Sender{AuthorID: first},
			},
		},
		{
			name: "another author of another audience is not named", given: stored(),
			when: send(by("bo"), func(c *datapoint.Ingest) { c.Audience = team }),
			then: &datapoint.Moved{
				Send:   free,
				States: datapoint.States{Effect: *stored(func(s *datapoint.State) { s.Audience = team })},
				Sender: datapoint.Sender{AuthorID: first},
			},
		},
		{
			name: "the author of a revision is named", given: stored(),
			when: send(by("bo"), func(c *datapoint.Ingest) { c.ContentDigest = "bb" }),
			then: func() event.Event {
				e := revision(2, func(s *datapoint.State) { s.Content = "bb" }).(*datapoint.RevisionAccepted)
				e.Author = "bo"
				return e
			}(),
		},
		{
			name: "audience only", given: stored(), when: send(func(c *datapoint.Ingest) { c.Audience = team }),
			then: &datapoint.Moved{
				Send:   free,
				States: datapoint.States{Effect: *stored(func(s *datapoint.State) { s.Audience = team })},
			},
		},
		{
			name: "omitted audience makes it project-visible", given: stored(func(s *datapoint.State) { s.Audience = team }), when: send(),
			then: &datapoint.Moved{Send: free, States: datapoint.States{Effect: *stored()}},
		},
		{
			name: "changed content keeps label, metadata and time", given: stored(), when: send(func(c *datapoint.Ingest) { c.ContentDigest = "bb" }),
			then: revision(2, func(s *datapoint.State) { s.Content = "bb" }),
		},
		{
			name: "changed label", given: stored(), when: send(func(c *datapoint.Ingest) { c.Label = &label }),
			then: revision(2, func(s *datapoint.State) { s.Label = &label }),
		},
		{
			name: "changed timestamp", given: stored(), when: send(func(c *datapoint.Ingest) { c.OccurredAt = &evening }),
			then: revision(2, func(s *datapoint.State) { s.OccurredAt = evening }),
		},
		{
			name: "the same timestamp is unchanged", given: stored(), when: send(func(c *datapoint.Ingest) { c.OccurredAt = &noon }),
			then: &datapoint.Resent{Send: free, States: datapoint.States{Effect: *stored()}},
		},
		{
			name: "behind later effects it is history", given: stored(),
			later: stored(func(s *datapoint.State) { s.Revision, s.LastNumber, s.Content = 4, 4, "dd" }),
			when:  send(func(c *datapoint.Ingest) { c.ContentDigest = "bb" }),
			then: func() event.Event {
				e := revision(5, func(s *datapoint.State) { s.Content = "bb" }).(*datapoint.RevisionAccepted)
				e.Current = stored(func(s *datapoint.State) { s.Revision, s.LastNumber, s.Content = 4, 5, "dd" })
				return e
			}(),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := datapoint.Base{State: tt.given, Next: 5, Later: tt.later}
			switch {
			case tt.later != nil:
				base.LastNumber = tt.later.LastNumber
			case tt.given != nil:
				base.LastNumber = tt.given.LastNumber
			}
			var metadata *datapoint.Text
			decided := base.Decide(tt.when)
			if decided.NeedsStoredMetadata(tt.when) {
				metadata = storedMetadata
			}
			e := decided.Event(tt.when, metadata)
			if diff := cmp.Diff(tt.then, e); diff != "" {
				t.Error(diff)
			}
			if outcome, _ := datapoint.OutcomeOf(e); decided.Outcome != outcome {
				t.Errorf("decided as %v, stored as %v", decided.Outcome, outcome)
			}
		})
	}
}

func TestMetadata_Changes(t *testing.T) {
	tests := []struct {
		name, a, b string
		same       bool
	}{
		{"key order and white space", `{"a":1,"b":[1, 2]}`, "{\"b\":[1,2],\n\"a\":1}", true},
		{"the last of two equal keys counts", `{"a":1,"a":2}`, `{"a":2}`, true},
		{"numbers as written", `{"a":1.0}`, `{"a":1}`, false},
		{"big numbers keep every digit", `12345678901234567890`, `12345678901234567891`, false},
		{"escapes say the same", `"\u0041"`, `"A"`, true},
		{"null is a value", `null`, `{}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := datapoint.CanonicalMetadata([]byte(tt.a))
			runtest.Must(t, err)
			b, err := datapoint.CanonicalMetadata([]byte(tt.b))
			runtest.Must(t, err)
			if same := string(a) == string(b); same != tt.same {
				t.Errorf("same = %v: %s and %s", same, a, b)
			}
		})
	}
	for _, bad := range []string{``, `{`, `1 2`, `{"a":}`} {
		if _, err := datapoint.CanonicalMetadata([]byte(bad)); err == nil {
			t.Errorf("%q was taken for JSON", bad)
		}
	}
}

// TestPassageID_LeadsToItsNode: the id of a passage gives its node and its number, and differs from all others.
func TestPassageID_LeadsToItsNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		point := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "data point"))
		node := datapoint.NodeID(point, rapid.IntRange(1, 1000).Draw(t, "revision"))
		n := rapid.IntRange(0, 1<<24).Draw(t, "number")
		id := datapoint.PassageID(node, n)
		low, high, ok := datapoint.NodesOfPassage(id)
		if !ok || bytes.Compare(low[:], node[:]) > 0 || bytes.Compare(node[:], high[:]) > 0 {
			t.Fatalf("node %s is not within %s and %s", node, low, high)
		}
		if got := datapoint.PassageNumber(id, node); got != n {
			t.Fatalf("number %d, want %d", got, n)
		}
		if id == node || id == datapoint.PassageID(node, n+1) || id.Variant() != uuid.RFC4122 {
			t.Fatalf("id %s of node %s", id, node)
		}
		if _, _, ok := datapoint.NodesOfPassage(node); ok {
			t.Fatalf("node %s is taken for a passage", node)
		}
	})
}
