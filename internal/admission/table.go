// Package admission decides whether a call may pass: one table of what calls share, one of what each route asks
// for, and the room that writes wait for. Package httpx asks it.
package admission

import (
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/allowance"
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
