// Package condition is the state of a service, as probes, operators and the console show it.
package condition

import (
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/work"
)

// Reason is a constant sentence: every client can read it, so it holds no text of an error, no address and no name
// that somebody chose.
type Reason string

// NotReady is a part of the service that cannot work, and why.
type NotReady struct {
	Part   string `json:"part"`
	Reason Reason `json:"reason"`
	// Position is that of the event in question, 0 for none.
	Position uint64 `json:"position,omitempty"`
	// Cause is the error. Only operators read it.
	Cause string `json:"cause,omitempty"`
}

// String is the part and why it cannot work, on one line.
func (n NotReady) String() string {
	return client.NotReady{Part: n.Part, Reason: string(n.Reason), Position: n.Position, Cause: n.Cause}.String()
}

// What the client reads just as it is answered is a type of the client.
type (
	// Remarks are what an operator should know about a service, ready or not.
	Remarks = client.Remarks
	// SetAside is an event that projections ignore. No projections means all of them.
	SetAside = client.SetAside
)

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
