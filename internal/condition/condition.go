// Package condition is the state of a service: one list of conditions, which probes, metrics, the log, operators and
// the console show each in its way.
package condition

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/work"
)

// Reason is a sentence that every client can read, so it holds no text of an error, no address and no name that
// somebody chose.
type Reason string

// State is what a condition means for calls.
type State string

const (
	// NotReady is the state of a part that cannot work.
	NotReady State = "not ready"
	// Remark is the state of what an operator should know, ready or not.
	Remark State = "remark"
)

// Condition is something about a service that an operator should know.
type Condition struct {
	// Name is that of a part that is not ready, or of a remark as /readyz names it. Of is what it is about, if
	// there may be several of one name.
	Name, Of string
	State    State
	// Since is when this process first saw it.
	Since time.Time
	// Words describe it.
	Words Reason
	// Cause is why a part is not ready, Private what operators read of a remark in place of its words; "" for the same.
	// Only operators read them.
	Cause, Private string
	// Position is that of the event in question, 0 for none.
	Position uint64
	// Count is how many things it concerns, if they are counted.
	Count int
	// Projects are those that it concerns, none for all.
	Projects []uuid.UUID
	// SetAside is the event that projections ignore, nil for another condition.
	SetAside *client.SetAside
}

// What the client reads just as it is answered is a type of the client.
type (
	// Unready is a part that is not ready, and why.
	Unready = client.NotReady
	// Remarks are what an operator should know about a service, ready or not.
	Remarks = client.Remarks
)

// Part is the name of a part that is not ready.
func (c Condition) Part() string { return strings.TrimSpace(c.Name + " " + c.Of) }

// Projection is how far a projection is, as this process knows it. Positions are those of the log.
type Projection struct {
	Name     string `json:"name"`
	Version  int    `json:"version"`
	Position uint64 `json:"position"`
	Lag      uint64 `json:"lag"`
	// IsFedHere reports that this process applies the events.
	IsFedHere bool `json:"isFedHere"`
	// IsStopped reports that it applies no events. Problem is why, "" if nothing is wrong.
	IsStopped bool   `json:"isStopped"`
	Problem   Reason `json:"problem,omitempty"`
}

// Details are what operators see of a process and of what all processes share. What cannot be read is nil.
type Details struct {
	Version string `json:"version"`
	Roles   string `json:"roles"`
	// Bytes are the sizes of the parts of the data folder, counted each minute.
	Bytes        map[string]int64 `json:"bytes"`
	DataPoints   *int64           `json:"dataPoints"`
	DiskFree     *uint64          `json:"diskFree"`
	DiskRequired *uint64          `json:"diskRequired"`
	LastBackup   *time.Time       `json:"lastBackup"`
	// Index is what recall searches, RequestLogBytes what waits to be written to the request log.
	Index           string      `json:"index"`
	RequestLogBytes *int64      `json:"requestLogBytes"`
	Embeddings      *Embeddings `json:"embeddings"`
	Open            *work.Open  `json:"open"`
	Rebuilds        []Rebuild   `json:"rebuilds"`
}

// Embeddings is how far the vectors of a model are made: of Captured data points, Embedded have one. Live is the
// model that recall uses.
type Embeddings struct {
	Model    string `json:"model"`
	Live     string `json:"live"`
	Embedded int64  `json:"embedded"`
	Captured int64  `json:"captured"`
}

// Rebuild is a projection that is built again; IsRunning is false for an interrupted one.
type Rebuild struct {
	Projection string `json:"projection"`
	Position   uint64 `json:"position"`
	IsRunning  bool   `json:"isRunning"`
}

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
