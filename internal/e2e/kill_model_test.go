package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
)

// fields are the content of a data point, of the kills as of the leak walk.
type fields struct {
	content, label, metadata string
	occurredAt               time.Time
}

// with returns the fields after a send; what it omits keeps its value.
func (f fields) with(content, label string, metadata json.RawMessage, occurredAt time.Time) fields {
	f.content = content
	if label != "" {
		f.label = label
	}
	if metadata != nil {
		f.metadata = string(metadata)
	}
	if !occurredAt.IsZero() {
		f.occurredAt = occurredAt
	}
	return f
}

// sending returns the fields after a call of the client.
func (f fields) sending(p client.DataPoint) fields {
	at, _ := time.Parse(time.RFC3339, p.Timestamp) // none is the zero time
	return f.with(p.Content, p.Label, p.Metadata, at)
}

// equal reports whether a send that leaves these fields is no new revision of the others.
func (f fields) equal(g fields) bool {
	return f.content == g.content && f.label == g.label && f.metadata == g.metadata && f.occurredAt.Equal(g.occurredAt)
}

// junk reports whether there is nothing in the content to derive from, or to find it by.
func (f fields) junk() bool { return !strings.ContainsFunc(f.content, unicode.IsLetter) }

func (f fields) String() string {
	return fmt.Sprintf("{%.40q %d bytes, %q, %s, %s}", f.content, len(f.content), f.label, f.metadata,
		f.occurredAt.Format(time.RFC3339Nano))
}

// revision is one accepted revision of a point.
type revision struct {
	fields
	author string
	send   *send
}

// point is a data point of one worker, as what was acknowledged leaves it.
type point struct {
	id string
	// word is in every content of the point and in no other's, unless the content is junk.
	word      string
	deleted   bool
	revisions []*revision
	// contents are all that were ever sent, whatever became of them.
	contents map[string]bool
}

// now is the revision that stands, nil for none.
func (p *point) now() *revision {
	if p.deleted || len(p.revisions) == 0 {
		return nil
	}
	return p.revisions[len(p.revisions)-1]
}

// captured is the newest revision that memory can be derived from.
func (p *point) captured() *revision {
	for i := len(p.revisions) - 1; i >= 0 && !p.deleted; i-- {
		if !p.revisions[i].junk() {
			return p.revisions[i]
		}
	}
	return nil
}

// send is one that stands. Its id is "" where the answer was cut off and nobody could ask again.
type send struct {
	id      string
	call    *call
	created []*revision // by item, nil where the item changed nothing
	deleted bool        // as a send
}

// verb is the kind of a call.
type verb string

const (
	single     verb = "send"
	batch      verb = "batch"
	deletion   verb = "delete"
	wipe       verb = "delete send"
	retry      verb = "retry"
	repetition verb = "repeat"
	refusal    verb = "delete too much"
	crash      verb = "KILL"
)

// item is one data point of a call, and what is sent for it.
type item struct {
	point *point
	sent  client.DataPoint
}

// call is one that was made. start and end order calls; end is 0 while the call is under way.
type call struct {
	verb       verb
	worker     int
	key        string
	items      []item
	byPath     bool // a deletion by the route of one id
	target     *send
	send       *send
	start, end int
	answer     string
}

func (c *call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d-#%d worker %d: %s", c.start, c.end, c.worker, c.verb)
	if c.key != "" {
		fmt.Fprintf(&b, " with key %s", c.key)
	}
	if c.target != nil {
		fmt.Fprintf(&b, " of %s (call #%d)", c.target.id, c.target.call.start)
	}
	for _, i := range c.items {
		if c.verb == deletion || c.verb == refusal {
			fmt.Fprintf(&b, " %s", i.point.id)
			continue
		}
		fmt.Fprintf(&b, "\n      %s: %s", i.point.id, fields{}.sending(i.sent))
	}
	return b.String() + "\n   => " + c.answer
}

// concerns reports whether a call is about a point.
func (c *call) concerns(p *point) bool {
	for _, i := range c.items {
		if i.point == p {
			return true
		}
	}
	return c.target != nil && c.target.call.concerns(p)
}

// model is what was acknowledged. The points of a worker are changed by its own calls only, one at
// a time, under mu.
type model struct {
	mu      sync.Mutex
	ticks   int
	serial  int
	history []*call
	points  []*point
	sends   []*send
	shared  []*shared
	markers []string
	// ingested is how many revisions of the points were accepted.
	ingested int
}

func (m *model) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// next is a number that nothing else has.
func (m *model) next() (n int) {
	m.locked(func() { m.serial++; n = m.serial })
	return n
}

// begin notes that a call is made.
func (m *model) begin(c *call) {
	m.locked(func() {
		m.ticks++
		c.start, c.answer = m.ticks, "no answer"
		m.history = append(m.history, c)
		for _, i := range c.items {
			if i.sent.Content != "" {
				i.point.contents[i.sent.Content] = true
			}
		}
	})
}

// finish notes what a call was answered.
func (m *model) finish(c *call, format string, args ...any) {
	m.locked(func() {
		m.ticks++
		c.end, c.answer = m.ticks, fmt.Sprintf(format, args...)
	})
}

// note adds to the history of a call what was found out about it later.
func (m *model) note(c *call, format string, args ...any) {
	m.locked(func() { c.answer += "; " + fmt.Sprintf(format, args...) })
}

// after is what an item leaves of its point, and whether that is a new revision.
func after(i item) (fields, bool) {
	before := i.point.now()
	if before == nil {
		return fields{}.sending(i.sent), true
	}
	f := before.sending(i.sent)
	return f, !f.equal(before.fields)
}

// applySend enters a send that stands.
func (m *model) applySend(c *call, id string) *send {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &send{id: id, call: c}
	for _, i := range c.items {
		f, changed := after(i)
		var r *revision
		if changed {
			r = &revision{fields: f, author: i.sent.Identity, send: s}
			i.point.revisions = append(i.point.revisions, r)
			m.ingested++
		}
		s.created = append(s.created, r)
	}
	c.send = s
	m.sends = append(m.sends, s)
	return s
}

// applyDeletion enters a deletion by ids.
func (m *model) applyDeletion(c *call) {
	m.locked(func() {
		for _, i := range c.items {
			i.point.deleted = true
		}
	})
}

// applyWipe enters the deletion of a send: it takes the points whose newest revision is the send's.
func (m *model) applyWipe(s *send) {
	m.locked(func() {
		for _, i := range s.call.items {
			if r := i.point.now(); r != nil && r.send == s {
				i.point.deleted, s.deleted = true, true
			}
		}
	})
}

// failedSends is how many sends count as failed once nothing is under way: those with an item that
// cannot be derived, whose point lives and has no newer revision that could be.
func (m *model) failedSends() int {
	n := 0
	for _, s := range m.sends {
		if s.isLive() {
			n++
		}
	}
	return n
}

// isLive reports whether the failure of a send counts.
func (s *send) isLive() bool {
	if s.deleted {
		return false
	}
	for i, r := range s.created {
		if r == nil || !r.junk() {
			continue
		}
		p := s.call.items[i].point
		newer := false
		for _, later := range p.revisions[indexOf(p.revisions, r)+1:] {
			newer = newer || !later.junk()
		}
		if !p.deleted && !newer {
			return true
		}
	}
	return false
}

func indexOf(list []*revision, r *revision) int {
	for i := range list {
		if list[i] == r {
			return i
		}
	}
	return -1
}

// holds reports whether a point lives that the send brought a revision of.
func (s *send) holds() bool {
	for i, r := range s.created {
		if r != nil && !s.call.items[i].point.deleted {
			return true
		}
	}
	return false
}

// statuses are those that a send may end with.
func (s *send) statuses() []string {
	bad, live := false, true
	for i, r := range s.created {
		if r == nil {
			continue
		}
		bad = bad || r.junk()
		live = live && !s.call.items[i].point.deleted
	}
	switch {
	case !bad:
		return []string{"completed"}
	case live && !s.deleted:
		return []string{"failed"}
	default: // it had failed before its points were deleted, or not
		return []string{"completed", "failed"}
	}
}

// about is the history of a point, for the report of a failed test.
func (m *model) about(p *point) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, c := range m.history {
		if c.concerns(p) || c.verb == crash {
			b.WriteString(c.String() + "\n")
		}
	}
	return b.String()
}

// crashed notes the end of a process.
func (m *model) crashed(how string) {
	c := &call{verb: crash}
	m.begin(c)
	m.finish(c, "%s", how)
}

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
