package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
)

// eachOf works on a list, a few at once.
func eachOf[V any](list []V, work func(V)) {
	var group sync.WaitGroup
	next := make(chan V)
	for range 6 {
		group.Go(func() {
			for v := range next {
				work(v)
			}
		})
	}
	for _, v := range list {
		next <- v
	}
	close(next)
	group.Wait()
}

// barrier waits until recall knows whatever was stored before the call.
func barrier(t *testing.T, m *model, c *client.Client) {
	t.Helper()
	word := fmt.Sprintf("m%dx0", m.next())
	runtest.Must(t, errorOf(c.Ingest(t.Context(), client.DataPoint{ID: "marker-" + word, Content: "Marker " + word + "."})))
	m.locked(func() { m.markers = append(m.markers, "Marker "+word+".") })
	runtest.Await(t, "marker "+word+" is recalled", func() bool {
		got, err := observe(t.Context(), c, "marker-"+word, word)
		runtest.Must(t, err)
		return got != nil
	})
}

// observe is what recall shows of a point, found by its word; nil where it shows nothing.
func observe(ctx context.Context, c *client.Client, id, word string) (*client.RecallResult, error) {
	page, err := c.Recall(ctx, client.RecallRequest{Query: word, Identity: "ana", Limit: 20, MaxTokens: 32000})
	if err != nil {
		return nil, err
	}
	var found *client.RecallResult
	for i, r := range page.Results {
		if r.Artifact.Kind != "source" || r.Sources[0].SourceID != id {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s is recalled twice", id)
		}
		found = &page.Results[i]
	}
	return found, nil
}

// shows reports whether the recalled text is the current one. A point without words to find it by
// need not be recalled.
func shows(got *client.RecallResult, f *fields) bool {
	switch {
	case f == nil:
		return got == nil
	case got == nil:
		return f.junk()
	}
	s := got.Sources[0]
	return got.Content == f.content && s.Label == f.label && string(s.Metadata) == f.metadata &&
		f.occurredAt.Equal(s.OccurredAt)
}

func shownAs(got *client.RecallResult) string {
	if got == nil {
		return "nothing"
	}
	s := got.Sources[0]
	return fields{got.Content, s.Label, string(s.Metadata), s.OccurredAt}.String()
}

// current returns the content of a point now.
func current(p *point) *fields {
	if r := p.now(); r != nil {
		return &r.fields
	}
	return nil
}

// checkPoint holds a point against recall, once everything acknowledged is known to it.
func (m *model) checkPoint(t *testing.T, c *client.Client, p *point) {
	t.Helper()
	got, err := observe(t.Context(), c, p.id, p.word)
	if err != nil {
		t.Error(err)
		return
	}
	if want := current(p); !shows(got, want) {
		t.Errorf("%s (%s) stands as %v, and recall shows %s\n%s", p.id, p.word, want, shownAs(got), m.about(p))
	}
}

// glance recalls a point while it is worked on: recall never shows what was not sent, nor what was
// deleted before it was asked.
func (m *model) glance(ctx context.Context, t *testing.T, c *client.Client, p *point) bool {
	var deleted bool
	m.locked(func() { deleted = p.deleted })
	got, err := observe(ctx, c, p.id, p.word)
	if err != nil {
		if _, refused := errors.AsType[*client.APIError](err); refused {
			t.Errorf("recall of %s: %v", p.word, err)
		}
		return false
	}
	if got == nil {
		return true
	}
	var sent bool
	m.locked(func() { sent = p.contents[got.Content] })
	if deleted || !sent {
		t.Errorf("recall shows %s of %s; deleted: %v, was sent: %v\n%s", shownAs(got), p.id, deleted, sent, m.about(p))
	}
	return true
}

// checkStatus holds the answer to a poll against what a send can end as.
func (w *worker) checkStatus(s *send, status *client.IngestionStatus, err error) {
	if err != nil {
		w.errorf(s.call, "send %s can end as %v, and its poll fails: %v", s.id, s.statuses(), err)
		return
	}
	if !slices.Contains(s.statuses(), status.Status) {
		w.errorf(s.call, "send %s can end as %v, and polls %+v (%+v)", s.id, s.statuses(), status, status.Failure)
		return
	}
	if status.Failure != nil && status.Failure.Code != "content-rejected" {
		w.errorf(s.call, "send %s failed with %+v", s.id, status.Failure)
	}
}

// memories is how many memories a point has.
func memories(p *point) int {
	r := p.captured()
	if r == nil {
		return 0
	}
	return extracted(r.fields, r.author)
}

func extracted(f fields, author string) int {
	at := f.occurredAt
	if at.IsZero() {
		at = time.Now()
	}
	return len(comprehend.Extract(comprehend.Input{
		DataPoint: uuid.New(), Revision: 1, Content: f.content, Label: f.label, Metadata: []byte(f.metadata), Author: author, OccurredAt: at,
	}))
}

// resolve finds out what became of the call that a kill cut off: it is wholly there, or wholly not.
// Then it is made again, where it has a key always, else half of the times: a client that got no
// answer does that.
func (w *worker) resolve() {
	ctx := w.t.Context()
	if p := w.openShared; p != nil {
		open := w.openCall
		runtest.Await(w.t, "a call is answered when it is made again: "+p.String(), func() bool { return w.callShared(ctx, p, open) })
	}
	c := w.open
	if w.open = nil; c == nil {
		return
	}
	landed, known := w.landed(c)
	switch {
	case w.t.Failed():
	case c.verb == deletion && known && landed:
		w.m.note(c, "it had taken effect")
		w.m.applyDeletion(c)
	case c.verb == deletion && known:
		w.m.note(c, "it had not taken effect")
	case c.verb == deletion:
		var err error
		runtest.Await(w.t, "a deletion is not refused for load", func() bool { err = w.deletion(ctx, c); return !isBusy(err) })
		w.m.note(c, "made again: %v", err)
		if err != nil && !isRefused(err, http.StatusNotFound, fault.CodeDataPointNotFound) {
			w.errorf(c, "a deletion is refused when it is made again")
		}
		w.m.applyDeletion(c)
	case c.verb == wipe && known && !landed && w.rng.IntN(2) == 0:
		w.m.note(c, "it had not taken effect")
	case c.verb == wipe:
		var err error
		runtest.Await(w.t, "the deletion of a send is not refused for load", func() bool {
			err = w.c.DeleteIngestion(ctx, c.target.id)
			return !isBusy(err)
		})
		w.m.note(c, "landed: %v, %v; made again: %v", known, landed, err)
		if err != nil {
			w.errorf(c, "the deletion of a send is refused when it is made again")
		}
		w.m.applyWipe(c.target)
	case c.key == "" && known && !landed && w.rng.IntN(2) == 0:
		w.m.note(c, "it had not taken effect")
	case known && landed && c.key == "":
		w.m.note(c, "it had taken effect")
		w.m.applySend(c, "")
	default:
		w.again(c, known && landed)
	}
}

// again makes a send once more that was cut off.
func (w *worker) again(c *call, landed bool) {
	changes := make([]bool, len(c.items))
	for i := range c.items {
		_, changes[i] = after(c.items[i])
	}
	for try := range 2 {
		id, items, err := w.send(w.t.Context(), c)
		w.m.note(c, "had taken effect: %v, made again: %s %v", landed, id, err)
		if err != nil {
			w.errorf(c, "a send that was cut off is refused when it is made again")
			return
		}
		if c.key == "" { // nothing could be seen of it, so the answer may be either
			unchanged := make([]bool, len(c.items))
			for i, r := range items {
				unchanged[i] = r.Unchanged != nil && *r.Unchanged
			}
			if slices.Equal(unchanged, changes) && slices.Contains(changes, true) && !slices.Contains(changes, false) {
				w.m.applySend(c, "") // it took effect under an id that no answer carried
				return
			}
			w.checkItems(c, items, changes)
			w.sends = append(w.sends, w.m.applySend(c, id))
			return
		}
		w.checkItems(c, items, changes)
		if try == 0 {
			w.sends = append(w.sends, w.m.applySend(c, id))
		} else if c.send.id != id {
			w.errorf(c, "one key gives the sends %s and %s", c.send.id, id)
		}
	}
}

// landed looks at every point of a call that was cut off. known is false where nothing can be seen
// of it either way.
func (w *worker) landed(c *call) (landed, known bool) {
	items := c.items
	if c.verb == wipe {
		items = c.target.call.items
	}
	yes, no := 0, 0
	for _, i := range items {
		before, then := current(i.point), current(i.point)
		switch {
		case c.verb == deletion:
			then = nil
		case c.verb == wipe && i.point.now() != nil && i.point.now().send == c.target:
			then = nil
		case c.verb != wipe:
			f, _ := after(i)
			then = &f
		}
		got, err := observe(w.t.Context(), w.c, i.point.id, i.point.word)
		if err != nil {
			w.errorf(c, "recall: %v", err)
			return false, false
		}
		is, was := shows(got, then), shows(got, before)
		switch {
		case is && !was:
			yes++
		case was && !is:
			no++
		case !is && !was:
			w.errorf(c, "%s stood as %v, was to become %v, and recall shows %s\n%s", i.point.id, before, then, shownAs(got),
				w.m.about(i.point))
			return false, false
		}
	}
	if yes > 0 && no > 0 {
		w.errorf(c, "half of the call took effect: %d of its points show it, %d do not", yes, no)
	}
	return yes > 0, yes+no > 0
}
