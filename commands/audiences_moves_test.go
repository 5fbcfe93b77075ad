package commands_test

import (
	"slices"
	"testing"

	"github.com/annals-project/annals/commands"
)

func TestIngest_MovesWaitForProjections(t *testing.T) {
	w := newFixture(t)
	seen := &waits{}
	leads, staff := "leads", "staff"
	w.put(fixedOf(leads))
	w.put(fixedOf(staff))
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	for _, c := range []struct {
		name   string
		in     commands.DataPoint
		waits  bool
		last   string
		status string
	}{
		{"new", text("a", "x", to(leads)), false, "datapoint.revision-accepted.v1", "queued"},
		{"moved", text("a", "x", to(staff)), true, "datapoint.moved.v1", "completed"},
		{"again, where the first was perhaps not answered", text("a", "x", to(staff)), true, "datapoint.resent.v1", "completed"},
		{"new text there", text("a", "y", to(staff)), false, "datapoint.revision-accepted.v1", "queued"},
		{"new text elsewhere", text("a", "z", to(leads)), true, "datapoint.revision-accepted.v1", "queued"},
		{"without one", text("a", "z"), true, "datapoint.moved.v1", "completed"},
		{"said in full", text("a", "z", to("project")), false, "datapoint.resent.v1", "completed"},
	} {
		for _, way := range []string{"single", "batch"} {
			if way == "batch" {
				id := "in a batch"
				c.in.ID = &id
			}
			status := ""
			if way == "single" {
				status = w.ingest(c.in, "").Status
			} else {
				r, err := w.IngestBatch(t.Context(), w.call, []commands.DataPoint{text("b", "other"), c.in}, "")
				if err != nil {
					t.Fatal(err)
				}
				status = r.Items[1].Status
			}
			types := w.types(*c.in.ID)
			got := seen.take()
			want := waitsFor(c.waits, c.last == "datapoint.moved.v1")
			if types[len(types)-1] != c.last || status != c.status || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s, %s, waited for %v", c.name, way, types[len(types)-1], status, got)
			}
		}
	}
}

// waitsFor returns the projections that an answer waits for. A move is completed at once, so its
// answer waits for the index.
func waitsFor(follows, moved bool) []string {
	switch {
	case moved:
		return []string{"datapoints", "recallindex"}
	case follows:
		return []string{"datapoints"}
	default:
		return nil
	}
}

func TestIngest_RepeatedKeyOfAMove(t *testing.T) {
	w := newFixture(t)
	w.put(fixedOf("leads"))
	w.ingest(text("a", "x"), "")
	w.ingest(text("a", "x", to("leads")), "k1")
	batch := []commands.DataPoint{text("a", "x", to("leads"))}
	if _, err := w.IngestBatch(t.Context(), w.call, batch, "k2"); err != nil {
		t.Fatal(err)
	}
	seen := &waits{}
	w.configure(func(c *commands.Config) { c.Waiter = seen })
	// A repeated key is answered even after the audience was deleted.
	if err := w.DeleteAudience(t.Context(), w.call, "leads"); err != nil {
		t.Fatal(err)
	}
	seen.take()
	w.ingest(text("a", "x", to("leads")), "k1")
	if got := seen.take(); !slices.Equal(got, []string{"datapoints", "recallindex"}) {
		t.Errorf("waited for %v", got)
	}
	if _, err := w.IngestBatch(t.Context(), w.call, batch, "k2"); err != nil {
		t.Fatal(err)
	}
	if got := seen.take(); !slices.Equal(got, []string{"datapoints"}) {
		t.Errorf("the batch waited for %v", got)
	}
}

func TestIngestBatch_UnknownAudience(t *testing.T) {
	w := newFixture(t)
	w.put(fixedOf("leads"))
	for _, slug := range []string{"lead", "LEADS", "", "a/b"} {
		_, err := w.IngestBatch(t.Context(), w.call, []commands.DataPoint{text("a", "x", to("leads")), text("b", "x", to(slug))}, "")
		if f := wantFault(t, err, "audience-unknown"); f.Data["audience"] != slug || f.Data["item"] != 1 {
			t.Errorf("%q: %v", slug, f.Data)
		}
	}
	if n := len(w.history("a")); n != 0 {
		t.Errorf("%d events of the item before", n)
	}
}
