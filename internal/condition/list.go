package condition

import (
	"cmp"
	"slices"
	"sync"
	"time"

	client "github.com/annals-project/annals/client"
)

// The names of the remarks.
const (
	CatchingUp        = "catchingUp"
	WritesRefused     = "writesRefused"
	OpenTooLong       = "openTooLong"
	RecallElsewhere   = "recallElsewhere"
	RecallIncomplete  = "recallIncomplete"
	SemanticSearchOff = "semanticSearchOff"
	ServersDown       = "serversDown"
	SendsFailed       = "sendsFailed"
	BulkWritesLost    = "bulkWritesLost"
	LockAwaited       = "lockAwaited"
	ErasureDenied     = "erasureDenied"
	StreamsRestored   = "streamsRestored"
	StreamsDamaged    = "streamsDamaged"
	AuditTreesDiffer  = "auditTreesDiffer"
	AuditLate         = "auditLate"
	SetAside          = "setAside"
)

// List is conditions, causes before their effects.
type List []Condition

// IsReady reports whether every part can work.
func (l List) IsReady() bool {
	return !slices.ContainsFunc(l, func(c Condition) bool { return c.State == NotReady })
}

// Has reports whether a condition is in the list.
func (l List) Has(name, of string) bool {
	return slices.ContainsFunc(l, func(c Condition) bool { return c.Name == name && c.Of == of })
}

// Count returns how many things the conditions of a name concern.
func (l List) Count(name string) (n int) {
	for _, c := range l {
		if c.Name == name {
			n += cmp.Or(c.Count, 1)
		}
	}
	return n
}

// NotReady returns the parts that are not ready, with their causes if private is true.
func (l List) NotReady(private bool) []Unready {
	parts := []Unready{}
	for _, c := range l {
		if c.State != NotReady {
			continue
		}
		n := Unready{Part: c.Part(), Reason: string(c.Words), Position: c.Position, Since: c.Since}
		if private {
			n.Cause = c.Cause
		}
		parts = append(parts, n)
	}
	return parts
}

// Remarks returns the remarks, as operators read them if private is true.
func (l List) Remarks(private bool) (r Remarks) {
	fields := map[string]any{
		CatchingUp: &r.CatchingUp, WritesRefused: &r.WritesRefused, OpenTooLong: &r.OpenTooLong,
		RecallElsewhere: &r.RecallElsewhere, RecallIncomplete: &r.RecallIncomplete,
		SemanticSearchOff: &r.SemanticSearchOff, ServersDown: &r.ServersDown, SendsFailed: &r.SendsFailed,
		BulkWritesLost: &r.BulkWritesLost, LockAwaited: &r.LockAwaited, ErasureDenied: &r.ErasureDenied,
		StreamsRestored: &r.StreamsRestored, StreamsDamaged: &r.StreamsDamaged, AuditTreesDiffer: &r.AuditTreesDiffer,
		AuditLate: &r.AuditLate, SetAside: &r.SetAside,
	}
	for _, c := range l {
		text := string(c.Words)
		if private {
			text = cmp.Or(c.Private, text)
		}
		switch field := fields[c.Name].(type) {
		case *string:
			*field = text
		case *[]string:
			*field = append(*field, text)
		case *int:
			*field = c.Count
		case *[]client.SetAside:
			*field = append(*field, *c.SetAside)
		}
	}
	return r
}

// Watch remembers since when conditions last. It is safe for concurrent use. The zero value knows none.
type Watch struct {
	mu   sync.Mutex
	last List
}

// Note sets in a list since when each condition lasts, unless that is set. It returns those that begin, or have another
// cause than before, and those that ended.
func (w *Watch) Note(now time.Time, list List) (began, ended List) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list {
		c := &list[i]
		before, lasts := w.last.find(*c)
		if c.Since.IsZero() {
			if c.Since = now; lasts {
				c.Since = before.Since
			}
		}
		if !lasts || before.Cause != c.Cause {
			began = append(began, *c)
		}
	}
	for _, c := range w.last {
		if _, lasts := list.find(c); !lasts {
			ended = append(ended, c)
		}
	}
	w.last = slices.Clone(list)
	return began, ended
}

// find returns the condition of a list that is the same as one, whatever it is caused by.
func (l List) find(c Condition) (Condition, bool) {
	i := slices.IndexFunc(l, func(o Condition) bool { return o.Name == c.Name && o.Of == c.Of && o.State == c.State })
	if i < 0 {
		return Condition{}, false
	}
	return l[i], true
}
