package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
)

// shared is a point that every worker writes to at once; it is held to the order of calls that did
// not overlap.
type shared struct {
	id, word string
	calls    []*sharedCall
}

// sharedCall is a keyed send to a shared point, or its deletion. end is 0 while it is under way.
type sharedCall struct {
	key, content string
	start, end   int
	refused      bool // the point was deleted
	again        bool // it was cut off, and made once more
}

func (p *shared) String() string {
	var b strings.Builder
	for _, c := range p.calls {
		fmt.Fprintf(&b, "\n   #%d-#%d %s %q refused: %v", c.start, c.end, c.key, c.content, c.refused)
	}
	return p.id + b.String()
}

// pick is one of the three shared points that are written to now.
func (m *model) pick(n int) (p *shared) {
	m.locked(func() {
		for len(m.shared) < 3 {
			m.share()
		}
		p = m.shared[len(m.shared)-1-n]
	})
	return p
}

// share begins a shared point, which takes the place of the oldest.
func (m *model) share() {
	m.serial++
	m.shared = append(m.shared, &shared{id: fmt.Sprintf("shared-%d", m.serial), word: fmt.Sprintf("h%dx0", m.serial)})
}

// sendShared writes to a shared point, and now and then deletes it.
func (w *worker) sendShared(ctx context.Context) bool {
	p := w.m.pick(w.rng.IntN(3))
	n := w.m.next()
	c := &sharedCall{key: fmt.Sprintf("key-%d", n), content: fmt.Sprintf("The code word is %s, revision %d.", p.word, n)}
	if w.rng.IntN(12) == 0 {
		c.key, c.content = "", ""
	}
	w.m.locked(func() {
		w.m.ticks++
		c.start = w.m.ticks
		p.calls = append(p.calls, c)
	})
	return w.callShared(ctx, p, c)
}

// callShared makes the call, also once more after it was cut off.
func (w *worker) callShared(ctx context.Context, p *shared, c *sharedCall) bool {
	var err error
	if c.content == "" {
		_, err = w.c.DeleteDataPoints(ctx, []string{p.id})
	} else {
		_, err = w.c.Ingest(ctx, client.DataPoint{ID: p.id, Content: c.content, Timestamp: "2026-01-01T00:00:00Z", IdempotencyKey: c.key})
	}
	note := &call{verb: repetition}
	if w.cutOff(note, err) {
		w.open, w.openShared, w.openCall, c.again = nil, p, c, true
		return false
	}
	w.openShared, w.openCall = nil, nil
	gone := isRefused(err, http.StatusConflict, fault.CodeDataPointDeleted) ||
		isRefused(err, http.StatusNotFound, fault.CodeDataPointNotFound)
	if err != nil && !gone {
		w.t.Errorf("shared point: %v\n%s", err, p)
	}
	w.m.locked(func() {
		w.m.ticks++
		c.end, c.refused = w.m.ticks, gone
		if latest := w.m.shared[len(w.m.shared)-3:]; (c.content == "") != gone && slices.Contains(latest, p) {
			w.m.share()
		}
	})
	return true
}

// check holds a shared point against what recall shows of it: once deleted it is gone and refuses
// what comes later; else it shows the text of a send after whose end no other began.
func (p *shared) check(t *testing.T, c *client.Client) (got *client.RecallResult) {
	t.Helper()
	got, err := observe(t.Context(), c, p.id, p.word)
	if err != nil {
		t.Error(err)
		return nil
	}
	gone := 0 // the end of the first deletion that was acknowledged
	for _, d := range p.calls {
		if d.content == "" && !d.refused && (gone == 0 || d.end < gone) {
			gone = d.end
		}
	}
	var last *sharedCall
	newest := 0
	for _, s := range p.calls {
		switch {
		case s.content == "" || s.refused:
			continue
		case gone > 0 && s.start > gone:
			t.Errorf("a send of %s is accepted after its deletion: %s\n%s", p.id, s.key, p)
		}
		newest = max(newest, s.start)
		if got != nil && got.Content == s.content {
			last = s
		}
	}
	switch {
	case gone > 0 && got != nil:
		t.Errorf("%s was deleted, and recall shows %s\n%s", p.id, shownAs(got), p)
	case gone == 0 && newest > 0 && got == nil && !p.refusedAny():
		t.Errorf("%s is not recalled\n%s", p.id, p)
	case got != nil && last == nil:
		t.Errorf("recall shows %s, which no accepted send brought\n%s", shownAs(got), p)
	case last != nil && last.end < newest:
		t.Errorf("recall shows %s, and a newer send was accepted\n%s", shownAs(got), p)
	}
	return got
}

// refusedAny reports whether a call was refused because the point is deleted, as after a deletion
// that was cut off and took effect.
func (p *shared) refusedAny() bool {
	for _, c := range p.calls {
		if c.refused && (c.content != "" || c.again) {
			return true
		}
	}
	return false
}

// bounds are the least and the most revisions that the calls can have brought.
func (p *shared) bounds() (least, most int) {
	for _, c := range p.calls {
		switch {
		case c.content == "":
		case !c.refused:
			least, most = least+1, most+1
		case c.again:
			most++ // cut off, and then the point was deleted
		}
	}
	return least, most
}
