package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/comprehend"
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
	if _, err := c.Ingest(t.Context(), client.DataPoint{ID: "marker-" + word, Content: "Marker " + word + "."}); err != nil {
		t.Fatal(err)
	}
	m.locked(func() { m.markers = append(m.markers, "Marker "+word+".") })
	runtest.Await(t, "marker "+word+" is recalled", func() bool {
		got, err := observe(t.Context(), c, "marker-"+word, word)
		if err != nil {
			t.Fatal(err)
		}
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
		sameTime(f.timestamp, s.OccurredAt)
}

func shownAs(got *client.RecallResult) string {
	if got == nil {
		return "nothing"
	}
	s := got.Sources[0]
	return fields{got.Content, s.Label, string(s.Metadata), s.OccurredAt.Format(time.RFC3339Nano)}.String()
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
	at, err := time.Parse(time.RFC3339, f.timestamp)
	if err != nil {
		at = time.Now()
	}
	return len(comprehend.Extract(comprehend.Input{
		DataPoint: uuid.New(), Revision: 1, Content: f.content, Label: f.label, Metadata: []byte(f.metadata), Author: author, OccurredAt: at,
	}))
}
