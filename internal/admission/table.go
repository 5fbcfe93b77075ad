// Package admission decides whether a call may pass: one table of what calls share, one of what each route asks
// for, and the room that writes wait for. Package httpx asks it.
package admission

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
)

// Resource is something that calls share: a row of the table in docs/limits.md.
type Resource struct {
	Name string
	// Total is the most of all calls together, Organization the most of one organization, Project the most of
	// one project of it. While other projects of the organization want room, each has an equal part.
	Total, Organization, Project int64
	// Bytes is true if the unit is a byte.
	Bytes bool
	// Wait is how long a call waits for room, in turn, and Waiters how many do; a quarter of them are of one
	// organization.
	Wait    time.Duration
	Waiters int
	// Step is that of allowance.Config.
	Step int
	// Refusal is the message to a call that found no room.
	Refusal string
}

const (
	longestIngest = 98 << 20
	again         = "; send the request again"
)

// The table. A call that finds no room in time is answered with 503 service-unavailable and Retry-After.
var (
	// Serving is a place among the calls of everybody, before the caller is known.
	Serving = Resource{
		Name: "calls that are served at once, known callers or not", Total: 4096, Organization: 4096, Project: 4096,
		Refusal: "too many requests are being served" + again,
	}
	// Calls is a place among the calls of known callers.
	Calls = Resource{
		Name: "calls of known callers that are served at once", Total: 4096, Organization: 1024, Project: 768,
		Refusal: "too many requests of the organization are being served" + again,
	}
	// Strangers are shared between peer addresses, since their organization is not known.
	Strangers = Resource{
		Name:  "look-ups at once of keys that were never found, shared by peer address",
		Total: 2, Organization: 1, Project: 1, Wait: 2 * time.Second, Waiters: 256,
		Refusal: "too many keys that were never found are being looked up" + again,
	}
	// Bodies are the bytes of request bodies; one organization holds one of the longest of an ingest.
	Bodies = Resource{
		Name: "bytes of request bodies in flight", Total: 4 * longestIngest, Organization: longestIngest,
		Project: longestIngest, Bytes: true, Wait: 5 * time.Second, Waiters: 1024, Refusal: bodiesRefusal,
	}
	// LongBodies arrive one after the other, so that none waits for another one that is half read. The wait is
	// longer than a body that does not arrive keeps its slot.
	LongBodies = Resource{
		Name: "bodies over 16 MiB that arrive", Total: 4, Organization: 1, Project: 1, Wait: 15 * time.Second,
		Waiters: 256, Refusal: bodiesRefusal,
	}
	// LongestBodies are beyond what one organization reserves of Bodies.
	LongestBodies = Resource{
		Name: "bodies over 98 MiB in flight", Total: 1, Organization: 1, Project: 1, Wait: 5 * time.Second, Waiters: 64,
		Refusal: bodiesRefusal,
	}
	// Answers are the bytes that a read builds or writes.
	Answers = Resource{
		Name: "bytes of answers in flight", Total: 256 << 20, Organization: 64 << 20, Project: 64 << 20, Bytes: true,
		Wait: 5 * time.Second, Waiters: 256, Refusal: "too many bytes of answers are in flight" + again,
	}
	// LoggedCalls are the bytes of calls that are not in the request log yet.
	LoggedCalls = Resource{
		Name: "bytes of calls that wait for the request log", Total: 64 << 20, Organization: 16 << 20,
		Project: 12 << 20, Bytes: true, Wait: 5 * time.Second, Waiters: 1024,
		Refusal: "the request log is full, since its database is slow" + again,
	}
	// ReadRecords are the bytes of read records that are not in the log yet.
	ReadRecords = Resource{
		Name: "bytes of read records that wait for the log", Total: 32 << 20, Organization: 8 << 20, Project: 8 << 20,
		Bytes: true, Wait: 5 * time.Second, Waiters: 1024,
		Refusal: "too many read records wait for the log" + again,
	}
	// Recalls are at work: three quarters of the connections of calls to Postgres.
	Recalls = Resource{
		Name: "recalls at work", Total: 24, Organization: 12, Project: 12, Wait: 5 * time.Second, Waiters: 256,
		Refusal: "too many recalls of the organization are running; retry",
	}
	// Estimates are the bytes of memory of estimates with a body over 1 MiB; one organization makes one.
	Estimates = Resource{
		Name: "memory of estimates with a body over 1 MiB", Total: 4 * LongEstimate, Organization: 2 * LongEstimate,
		Project: 2 * LongEstimate, Bytes: true, Wait: 10 * time.Second, Waiters: 64, Refusal: estimatesRefusal,
	}
	// SmallEstimates are those of shorter ones, so that they never wait for long ones.
	SmallEstimates = Resource{
		Name: "memory of shorter estimates", Total: 128 << 20, Organization: 64 << 20, Project: 64 << 20, Bytes: true,
		Wait: 10 * time.Second, Waiters: 64, Refusal: estimatesRefusal,
	}
	// Debugging are the reads that replay streams and scan the request log.
	Debugging = Resource{
		Name: "debugging reads at work", Total: 8, Organization: 4, Project: 4, Wait: 5 * time.Second, Waiters: 64,
		Refusal: "too many debugging reads of the organization are running; retry",
	}
	// Tiles are reads of checkpoints and tiles. Callers without a key share by network address.
	Tiles = Resource{
		Name:  "reads of checkpoints and tiles of the audit log, shared by address without a key",
		Total: 8, Organization: 4, Project: 4, Wait: 5 * time.Second, Waiters: 64,
		Refusal: "too many parts of the audit log are being read" + again,
	}
	// AuditChecks read the whole log.
	AuditChecks = Resource{
		Name: "checks of the audit log at the console", Total: 2, Organization: 1, Project: 1,
		Refusal: "another check of the audit log runs" + again,
	}
	// Sessions are shared between the addresses of callers, since their organization is not known yet.
	Sessions = Resource{
		Name: "look-ups at once of sessions at the console, shared by address", Total: 8, Organization: 4, Project: 4,
		Wait: 5 * time.Second, Waiters: 256, Refusal: "too many sessions are being looked up" + again,
	}
	// Visiting are the bytes of short bodies before it is known who sends them. They are read before a place is taken.
	Visiting = Resource{
		Name:  "bytes of bodies up to 64 KiB of visitors of the console, shared by address",
		Total: 32 << 20, Organization: 2 << 20, Project: 2 << 20, Bytes: true, Wait: 5 * time.Second, Waiters: 256,
		Refusal: bodiesRefusal,
	}
	// Forms are the same of known callers.
	Forms = Resource{
		Name: "bytes of bodies up to 64 KiB at the console", Total: 32 << 20, Organization: 4 << 20, Project: 4 << 20,
		Bytes: true, Wait: 5 * time.Second, Waiters: 256, Refusal: bodiesRefusal,
	}
	// LongForms are read once the right of the caller was checked. One organization sends one upload at a time.
	LongForms = Resource{
		Name: "bytes of longer bodies at the console", Total: 160 << 20, Organization: 40 << 20, Project: 40 << 20,
		Bytes: true, Wait: 5 * time.Second, Waiters: 256, Refusal: bodiesRefusal,
	}
	// Visitors are at pages such as sign-in, which is slow on purpose: they take no place of those who are signed in.
	Visitors = Resource{
		Name: "pages at work for people who are not signed in, shared by address", Total: 64, Organization: 16,
		Project: 16, Wait: 5 * time.Second, Waiters: 256, Refusal: "too many people are signing in" + again,
	}
	// Known are at the same pages in browsers in which a person signed in before, so that strangers keep no person out.
	Known = Resource{
		Name:  "pages at work in known browsers of people who are not signed in, shared by person",
		Total: 32, Organization: 4, Project: 4, Wait: 5 * time.Second, Waiters: 256,
		Refusal: "too many people are signing in" + again,
	}
	// Pages are at work for people who are signed in.
	Pages = Resource{
		Name: "pages of the console at work", Total: 16, Organization: 6, Project: 6, Wait: 5 * time.Second, Waiters: 256,
		Refusal: "too many pages of the organization are being made" + again,
	}
	// Tools are calls of MCP by known callers, who come from few addresses.
	Tools = Resource{
		Name: "calls of MCP at work", Total: 64, Organization: 16, Project: 12, Wait: 5 * time.Second, Waiters: 256,
		Refusal: "too many calls of the organization are being answered" + again,
	}
	// Exports write files of any length. The share of a project is that of a person.
	Exports = Resource{
		Name: "exports and files of lists that are written, shared by person in an organization", Total: 16,
		Organization: 4, Project: 2, Wait: 5 * time.Second, Waiters: 64, Step: 256 << 10,
		Refusal: "too many exports of the organization are being written" + again,
	}
	// Unread are the bytes of pages that are made and whose readers have not got them yet: these hold no place.
	Unread = Resource{
		Name: "bytes of pages over 16 KiB that are sent", Total: 64 << 20, Organization: 16 << 20, Project: 16 << 20,
		Bytes: true, Wait: 5 * time.Second, Waiters: 256, Refusal: "too many bytes of pages are being sent" + again,
	}
)

const (
	bodiesRefusal    = "too many bytes of request bodies are in flight" + again
	estimatesRefusal = "too many estimates are being made" + again

	// LongEstimate is the memory of a long estimate besides its body: what is kept of it, and the copies of a file
	// while it is cut.
	LongEstimate = limit.EstimateKept + 4*limit.EstimateFileBytes
)

// Resources lists the table.
func Resources() []Resource {
	return []Resource{
		Serving, Strangers, Calls, LoggedCalls, ReadRecords, Bodies, LongBodies, LongestBodies, Answers, Recalls, Estimates,
		SmallEstimates, Debugging, Tiles, AuditChecks, Sessions, Visiting, Forms, LongForms, Visitors, Known, Pages, Tools,
		Exports, Unread,
	}
}

// New returns what the calls of a process share.
func (r Resource) New() *allowance.Allowance {
	return allowance.New(allowance.Config{
		Total: r.Total, Share: r.Organization, Project: r.Project, Wait: r.Wait, Waiters: r.Waiters,
		Step: r.Step, Refusal: r.Refusal,
	})
}

// Of returns a resource of another total, with the same shares of it, each at least one.
func (r Resource) Of(total int64) Resource {
	part := func(n int64) int64 { return max(total*n/r.Total, 1) }
	r.Total, r.Organization, r.Project = total, part(r.Organization), part(r.Project)
	return r
}

// Lane is the kind of room that a call waits for before its body is read.
type Lane int

// The lanes. NoRoom is that of reads, and of deletions: nobody is refused to forget.
const (
	NoRoom Lane = iota
	// Settled writes derive nothing: they wait only while the projections lag by events of their own project.
	Settled
	// Live are single sends and events: they are recalled at once, so their age bounds them.
	Live
	// Bulk are batches: they are paced by what the projections have not applied, and bounded by what waits.
	Bulk
)

// String returns the name of a lane.
func (l Lane) String() string { return []string{"", "settled", "live", "bulk"}[l] }

// Route is what the calls of a route ask for besides a place, the rate of their organization and the request log.
type Route struct {
	Lane Lane
	// Body is true if the call has a body that is read.
	Body bool
	// Slot is taken before the body is read, Work by the handler after it: one of these.
	Slot *Resource
	Work []*Resource
}

// routes has a row for each route of the contract: method, a space, and the path below /api/v1.
var routes = map[string]Route{
	"POST /ingest":                           {Lane: Live, Body: true},
	"POST /ingest/batch":                     {Lane: Bulk, Body: true},
	"POST /ingest/estimate":                  {Body: true, Work: []*Resource{&SmallEstimates, &Estimates}},
	"GET /ingest/:ingestionId":               {},
	"DELETE /ingest/:ingestionId":            {},
	"POST /ingest/:ingestionId/retry":        {Lane: Live},
	"GET /ingest/:ingestionId/explain":       {Slot: &Debugging},
	"DELETE /data-points/:sourceId":          {},
	"POST /data-points/delete":               {Body: true},
	"POST /recall":                           {Body: true, Work: []*Resource{&Recalls}},
	"PUT /identities/:identity":              {Lane: Settled, Body: true},
	"PATCH /identities/:identity":            {Lane: Settled, Body: true},
	"POST /identities/bulk":                  {Lane: Settled, Body: true},
	"GET /identities":                        {},
	"GET /identities/:identity":              {},
	"DELETE /identities/:identity":           {},
	"GET /audiences":                         {},
	"PUT /audiences/:slug":                   {Lane: Settled, Body: true},
	"GET /audiences/:slug":                   {},
	"DELETE /audiences/:slug":                {},
	"POST /audiences/:slug/recompute":        {Lane: Settled},
	"GET /projects":                          {},
	"POST /projects":                         {Lane: Settled, Body: true},
	"POST /projects/:slug/keys":              {Lane: Settled, Body: true},
	"DELETE /projects/:slug/keys/:keyId":     {},
	"GET /requests":                          {Slot: &Debugging},
	"GET /requests/histogram":                {Slot: &Debugging},
	"GET /requests/:requestId":               {Slot: &Debugging},
	"GET /trace/roots":                       {Slot: &Debugging},
	"GET /trace/nodes/:id":                   {Slot: &Debugging},
	"GET /trace/lineage/:rootId":             {Slot: &Debugging},
	"GET /trace/timeline/:rootId":            {Slot: &Debugging},
	"GET /usage":                             {},
	"GET /audit/:organization/checkpoint":    {Slot: &Tiles},
	"GET /audit/:organization/policy":        {Slot: &Tiles},
	"GET /audit/:organization/tile/:level/*": {Slot: &Tiles},
	"GET /audit/:organization/proofs":        {Slot: &Debugging},
	"POST /webhooks/:webhookId/:token":       {Lane: Live, Body: true},
}

// RouteOf returns the row of a route; ok is false for what is no route of the contract.
func RouteOf(r auth.Route) (row Route, ok bool) {
	row, ok = routes[r.Method+" "+strings.TrimPrefix(r.Path, auth.Prefix)]
	return row, ok
}

// Write is a call that asks for room, before its body is read.
type Write struct {
	allowance.Owner
	// Lane is NoRoom for a deletion.
	Lane Lane
	// Length is that of the body, -1 if it is not known.
	Length int64
	// Arriving reports whether the body is still arriving; nil if it is there. It is called under a lock.
	Arriving func() bool
	// Gone reports whether the client has left; nil if that cannot be found out.
	Gone func() bool
	// Parked is called once if the call has to wait: it holds nothing meanwhile. It may be nil.
	Parked func()
	// Items receives how many items a batch has. It may be nil.
	Items *Items
}

// Items is how many items a batch has. Its length alone does not tell.
type Items struct {
	n     atomic.Int64
	noted func(n int)
}

// Note notes the number, once the body was read. It does nothing for a batch that was not let in.
func (i *Items) Note(n int) {
	if i.noted != nil && n > 0 {
		i.n.Store(int64(n))
		i.noted(n)
	}
}
