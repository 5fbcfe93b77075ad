package admission

import (
	"strings"

	"github.com/annals-project/annals/internal/auth"
)

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
