// Package condition is the state of a service: one list of conditions, which probes, metrics, the log, operators and
// the console show each in its way.
package condition

import (
	"strings"
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
