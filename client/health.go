package annals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Health is that of a process that runs.
type Health struct {
	// Status is "ok".
	Status  string `json:"status"`
	Version string `json:"version"`
}

// Health returns whether a process of the service runs. It needs no key.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return send[Health](ctx, c, call{method: http.MethodGet, path: "/healthz", repeat: safe, anonymous: true})
}

// ReadyStatus is whether a process can take calls, and what its operator should know.
type ReadyStatus struct {
	Ready bool `json:"-"`
	// NotReady are the parts that are not ready.
	NotReady []NotReady `json:"notReady,omitempty"`
	Remarks
}

// Remarks are what an operator should know about a process, ready or not.
type Remarks struct {
	// CatchingUp describes how far a start has read the log, "" once it has.
	CatchingUp string `json:"catchingUp,omitempty"`
	// WritesRefused are the reasons why writes are refused at the moment.
	WritesRefused []string `json:"writesRefused,omitempty"`
	// OpenTooLong describes an item or send that is open for too long, "" if there is none.
	OpenTooLong string `json:"openTooLong,omitempty"`
	// RecallElsewhere is the reason why this process does not answer recall, "" if it does.
	RecallElsewhere string `json:"recallElsewhere,omitempty"`
	// RecallIncomplete names the parts of the index that are being filled again. Recall of the projects in them is
	// refused meanwhile.
	RecallIncomplete []string `json:"recallIncomplete,omitempty"`
	// SemanticSearchOff is the reason why recall searches by words alone although vectors are stored, "" if it does not.
	SemanticSearchOff string `json:"semanticSearchOff,omitempty"`
	// ServersDown describes the servers that background work calls and that cannot be used, such as the model.
	ServersDown []string `json:"serversDown,omitempty"`
	// SendsFailed describes the sends that failed lately, "" if none did.
	SendsFailed string `json:"sendsFailed,omitempty"`
	// BulkWritesLost counts the abandoned bulk writes of identities, whose rows could not be read.
	BulkWritesLost int `json:"bulkWritesLost,omitempty"`
	// LockAwaited describes a lock of another session of Postgres for which the service waits, "" for none.
	LockAwaited string `json:"lockAwaited,omitempty"`
	// ErasureDenied describes the right that the event store denies erasure, "" if it does not. Recall returns nothing of
	// what was deleted all the same.
	ErasureDenied string `json:"erasureDenied,omitempty"`
	// StreamsRestored describes the streams that somebody else hid in the event store and that this process shows again,
	// "" for none.
	StreamsRestored string `json:"streamsRestored,omitempty"`
	// StreamsDamaged describes the streams that somebody else ended or hid in the event store, "" for none.
	StreamsDamaged string `json:"streamsDamaged,omitempty"`
	// AuditTreesDiffer describes the audit trees that do not match their checkpoints, "" for none.
	AuditTreesDiffer string `json:"auditTreesDiffer,omitempty"`
	// AuditLate describes what waits for long: events for a checkpoint, checkpoints for the anchor or for a witness.
	AuditLate []string `json:"auditLate,omitempty"`
	// SetAside are the events that projections ignore.
	SetAside []SetAside `json:"setAside,omitempty"`
}

// Lines describes the remarks for people, each on a line, without SetAside.
func (r Remarks) Lines() []string {
	var lines []string
	add := func(before, text string) {
		if text != "" {
			lines = append(lines, before+text)
		}
	}
	add("", r.CatchingUp)
	for _, reason := range r.WritesRefused {
		add("writes are refused: ", reason)
	}
	add("", r.OpenTooLong)
	add("parts of the index are filled again, and recall of their projects is refused meanwhile: ",
		strings.Join(r.RecallIncomplete, ", "))
	add("recall is not answered here: ", r.RecallElsewhere)
	add("", r.SemanticSearchOff)
	lines = append(lines, r.ServersDown...)
	for _, text := range []string{
		r.SendsFailed, r.LockAwaited, r.ErasureDenied, r.StreamsRestored, r.StreamsDamaged, r.AuditTreesDiffer,
	} {
		add("", text)
	}
	lines = append(lines, r.AuditLate...)
	if n := r.BulkWritesLost; n > 0 {
		writes := "bulk writes"
		if n == 1 {
			writes = "bulk write"
		}
		lines = append(lines, fmt.Sprintf("%d %s of identities given up, since the rows could not be read", n, writes))
	}
	return lines
}

// NotReady is a part of the service that is not ready.
type NotReady struct {
	Part   string `json:"part"`
	Reason string `json:"reason"`
	// Position is that of an event in the log, 0 for none.
	Position uint64 `json:"position,omitempty"`
	// Since is when the process first saw it.
	Since time.Time `json:"since,omitzero"`
	// Cause is shown to operators only.
	Cause string `json:"cause,omitempty"`
}

// String is the part and why it is not ready, on one line.
func (n NotReady) String() string {
	text := n.Part + ": " + n.Reason
	if n.Position > 0 {
		text += fmt.Sprintf(" (position %d)", n.Position)
	}
	if n.Cause != "" {
		text += ": " + n.Cause
	}
	return text
}

// SetAside is an event that the named projections ignore, or all if none is named.
type SetAside struct {
	Position    uint64   `json:"position"`
	Type        string   `json:"type"`
	Projections []string `json:"projections,omitempty"`
}

// Ready asks once whether a process can take calls. It needs no key. A process that is not ready is no error; an
// [*APIError] is an answer without an explanation, such as a 404 if the operation routes have another address.
func (c *Client) Ready(ctx context.Context) (*ReadyStatus, error) {
	asked := *c
	asked.maxAttempts = 1
	is := &ReadyStatus{Ready: true}
	_, err := asked.do(ctx, call{
		method: http.MethodGet, path: "/readyz", repeat: safe, anonymous: true,
		read: func(body io.Reader) error {
			text, err := io.ReadAll(&bounded{body, maxResponse})
			_ = json.Unmarshal(text, is) // a proxy may answer 200 with another body
			return err
		},
	})
	var refused *APIError
	if errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable {
		is = &ReadyStatus{}
		if json.Unmarshal(refused.Data, is) == nil && len(is.NotReady) > 0 {
			return is, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return is, nil
}
