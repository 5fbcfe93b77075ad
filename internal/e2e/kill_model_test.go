package e2e

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	client "github.com/annals-project/annals/client"
)

// fields are the content of a data point.
type fields struct{ content, label, metadata, timestamp string }

// with returns the fields after a send; an omitted field keeps its value.
func (f fields) with(sent client.DataPoint) fields {
	f.content = sent.Content
	if sent.Label != "" {
		f.label = sent.Label
	}
	if sent.Metadata != nil {
		f.metadata = string(sent.Metadata)
	}
	if sent.Timestamp != "" {
		f.timestamp = sent.Timestamp
	}
	return f
}

// junk reports whether there is nothing in the content to derive from, or to find it by.
func (f fields) junk() bool { return !strings.ContainsFunc(f.content, unicode.IsLetter) }

func (f fields) String() string {
	return fmt.Sprintf("{%.40q %d bytes, %q, %s, %s}", f.content, len(f.content), f.label, f.metadata, f.timestamp)
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
		fmt.Fprintf(&b, "\n      %s: %s", i.point.id, fields{}.with(i.sent))
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
		return fields{}.with(i.sent), true
	}
	f := before.with(i.sent)
	return f, f != before.fields
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

// sameTime reports whether an answered time is the one that was sent.
func sameTime(sent string, got time.Time) bool {
	at, err := time.Parse(time.RFC3339, sent)
	return err == nil && at.Equal(got)
}
