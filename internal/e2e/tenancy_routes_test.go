package e2e

import (
	"fmt"
	"strings"

	"github.com/annals-project/annals/internal/auth"
)

// attack is how a route is called with the names of a neighbour.
type attack struct {
	calls func(n names, own tenant) []request
	// within is set if a management key may also attack a project of its organization.
	within bool
}

// requests are the calls with a kind of key: those of the route, and each of them with the
// neighbour's project named in the query.
func (a *attack) requests(n names, own tenant, kind auth.Kind) []request {
	var all []request
	for _, c := range a.calls(n, own) {
		identities := strings.HasPrefix(c.path, "/identities")
		if kind == auth.ProjectKey {
			named := c
			named.path, named.want, named.grows = with(c.path, n.project), 400, false
			c.grows = false
			all = append(all, named, c)
			continue
		}
		if identities {
			named := c
			named.path, named.want = with(c.path, n.project), 404
			all = append(all, named)
			c.path = with(c.path, own.slug)
		}
		all = append(all, c)
	}
	return all
}

// with names a project in the query of a path.
func with(path, project string) string {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "project=" + project
}

// only is an attack of calls that share what they want.
func only(want int, calls ...func(n names, own tenant) request) *attack {
	return &attack{calls: func(n names, own tenant) []request {
		var all []request
		for _, call := range calls {
			r := call(n, own)
			if r.want == 0 {
				r.want = want
			}
			all = append(all, r)
		}
		return all
	}}
}

// at is a call without a body whose path ends in a name.
func at(before string, name func(n names) string, after string) func(names, tenant) request {
	return func(n names, _ tenant) request { return request{path: before + name(n) + after} }
}

// sent is a call with a body, which the names fill.
func sent(path, format string, fill ...func(n names) string) func(names, tenant) request {
	return func(n names, _ tenant) request {
		values := make([]any, len(fill))
		for i, f := range fill {
			values[i] = f(n)
		}
		return request{path: path, body: fmt.Sprintf(format, values...)}
	}
}

// also is a call that answers another status than the others of its attack.
func also(want int, call func(names, tenant) request) func(names, tenant) request {
	return func(n names, own tenant) request {
		r := call(n, own)
		r.want = want
		return r
	}
}

func itsOrganization(n names) string { return n.organization }

func itsSource(n names) string    { return n.source }
func itsIngestion(n names) string { return n.ingestion }
func itsIdentity(n names) string  { return n.identity }
func itsAudience(n names) string  { return n.audience }
func itsTrait(n names) string     { return n.trait }
func itsWords(n names) string     { return n.words }
func itsNode(n names) string      { return n.node }
func itsRequest(n names) string   { return n.request }

// attacks are how every route is called with the names of a neighbour. A name that the caller may
// use itself makes something of the caller's own.
var attacks = map[string]*attack{
	"POST /ingest": only(202,
		sent("/ingest", `{"id":%q,"content":"hello there","identity":%q}`, itsSource, itsIdentity),
		sent("/ingest", `{"content":"hello again","idempotencyKey":%q}`, func(n names) string { return n.idempotency }),
		also(400, sent("/ingest", `{"id":%q,"content":"hello there","audience":%q}`, itsSource, itsAudience))),
	"POST /ingest/batch": only(202,
		sent("/ingest/batch", `{"items":[{"id":%q,"content":"hello there","identity":%q}]}`, itsSource, itsIdentity),
		sent(
			"/ingest/batch", `{"items":[{"content":"hello again"}],"idempotencyKey":%q}`,
			func(n names) string { return n.idempotency },
		),
		also(400, sent("/ingest/batch", `{"items":[{"content":"hello"},{"id":%q,"content":"hello there","audience":%q}]}`,
			itsSource, itsAudience)),
	),
	"GET /ingest/:ingestionId":        only(404, at("/ingest/", itsIngestion, "")),
	"DELETE /ingest/:ingestionId":     only(404, at("/ingest/", itsIngestion, "")),
	"POST /ingest/:ingestionId/retry": only(404, at("/ingest/", itsIngestion, "/retry")),
	"GET /ingest/:ingestionId/explain": only(404, at("/ingest/", itsIngestion, "/explain"),
		at("/ingest/", itsRequest, "/explain")),
	"DELETE /data-points/:sourceId": only(404, at("/data-points/", itsSource, "")),
	"POST /data-points/delete":      only(404, sent("/data-points/delete", `{"ids":[%q]}`, itsSource)),

	"POST /ingest/estimate": only(200, sent("/ingest/estimate",
		`{"points":"none","items":[{"content":"mine","id":%q,"identity":%q}]}`, itsSource, itsIdentity)),

	"POST /recall": only(200, sent("/recall", `{"query":"secret %s","identity":%q}`, itsWords, itsIdentity)),

	"GET /requests": only(200, at("/requests?search=", itsRequest, ""), at("/requests?search=", itsSource, "")),
	"GET /requests/histogram": only(200, at("/requests/histogram?search=", itsRequest, ""),
		at("/requests/histogram?search=", itsSource, "")),
	"GET /requests/:requestId": only(404, at("/requests/", itsRequest, "")),
	"GET /trace/roots": only(200, at("/trace/roots?search=", itsSource, ""), at("/trace/roots?search=", itsWords, ""),
		at("/trace/roots?search=", itsNode, ""), at("/trace/roots?ingestionId=", itsIngestion, "")),
	"GET /trace/nodes/:id":        only(404, at("/trace/nodes/", itsNode, "")),
	"GET /trace/lineage/:rootId":  only(404, at("/trace/lineage/", itsNode, "?revealAll=true")),
	"GET /trace/timeline/:rootId": only(404, at("/trace/timeline/", itsNode, "")),

	"PUT /identities/:identity": only(200, func(n names, _ tenant) request {
		return request{path: "/identities/" + n.identity, body: `{"traits":{"mine":"a"}}`}
	}),
	"PATCH /identities/:identity": only(200, func(n names, _ tenant) request {
		return request{path: "/identities/" + n.identity, body: fmt.Sprintf(`{"traits":{%q:null,"mine":"a"}}`, n.trait)}
	}),
	"POST /identities/bulk": only(200, sent("/identities/bulk", `[{"identity":%q,"traits":{"mine":"a"}}]`, itsIdentity)),
	"GET /identities": only(200, at("/identities?traitKey=", itsTrait, ""), func(n names, _ tenant) request {
		return request{path: "/identities?traitKey=" + n.trait + "&traitValue=" + n.value}
	}, func(n names, _ tenant) request { return request{path: "/identities?limit=1000&after=" + n.cursor} }),
	"GET /identities/:identity":    only(404, at("/identities/", itsIdentity, "")),
	"DELETE /identities/:identity": only(404, at("/identities/", itsIdentity, "")),

	"GET /audiences": only(200, func(names, tenant) request { return request{path: "/audiences"} }),
	"PUT /audiences/:slug": only(201,
		func(n names, _ tenant) request {
			return request{path: "/audiences/" + n.audience, body: fmt.Sprintf(`{"kind":"fixed","identities":[%q]}`, n.identity)}
		},
		func(n names, _ tenant) request {
			rule := fmt.Sprintf(`{"match":"all","conditions":[{"trait":%q,"operator":"is","values":[%q]}]}`, n.trait, n.value)
			return request{path: "/audiences/" + n.audience + "-b", body: `{"kind":"rule","rule":` + rule + `}`}
		}),
	"GET /audiences/:slug":            only(404, at("/audiences/", itsAudience, "")),
	"DELETE /audiences/:slug":         only(404, at("/audiences/", itsAudience, "")),
	"POST /audiences/:slug/recompute": only(404, at("/audiences/", itsAudience, "/recompute")),

	"GET /projects": only(200, func(names, tenant) request { return request{path: "/projects", grows: true} }),
	"POST /projects": only(201, func(n names, _ tenant) request {
		return request{path: "/projects", body: fmt.Sprintf(`{"name":"%s b"}`, n.project)}
	}),
	"POST /projects/:slug/keys": only(404, func(n names, _ tenant) request {
		return request{path: "/projects/" + n.project + "/keys", body: `{"name":"mine"}`}
	}),
	"DELETE /projects/:slug/keys/:keyId": {within: true, calls: func(n names, own tenant) []request {
		calls := []request{{path: "/projects/" + own.slug + "/keys/" + n.keyID, want: 404}}
		if n.far { // the manager of its own organization may
			calls = append(calls, request{path: "/projects/" + n.project + "/keys/" + n.keyID, want: 404})
		}
		return calls
	}},
	"POST /webhooks/:webhookId/:token": {within: true, calls: func(n names, own tenant) []request {
		return []request{
			{path: "/webhooks/" + n.webhook + "/" + own.token, body: `{"content":"hello there"}`, want: 404},
			{path: "/webhooks/" + n.webhook + "/" + own.key, body: `{"content":"hello there"}`, want: 404},
		}
	}},
	"GET /audit/:organization/checkpoint":    only(404, at("/audit/", itsOrganization, "/checkpoint")),
	"GET /audit/:organization/policy":        only(404, at("/audit/", itsOrganization, "/policy")),
	"GET /audit/:organization/tile/:level/*": only(404, at("/audit/", itsOrganization, "/tile/0/000.p/1")),
	"GET /audit/:organization/proofs": only(404, func(n names, _ tenant) request {
		return request{path: "/audit/" + n.organization + "/proofs?ingestion=" + n.ingestion}
	}, func(n names, _ tenant) request {
		return request{path: "/audit/" + n.organization + "/proofs?source=" + n.source + "&project=" + n.project}
	}),
	"GET /usage": only(200, func(names, tenant) request { return request{path: "/usage", grows: true} }),
}
