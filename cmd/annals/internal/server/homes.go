package server

import "github.com/annals-project/annals/internal/httpx"

// what is the sentence that the pages at / begin with.
const what = "Annals is a memory service: it takes timestamped text and returns what is remembered, with its sources. "

// operationLinks are the links of the address that serves the operation routes.
var operationLinks = []httpx.Link{
	{Target: "/healthz", Text: "Whether the service runs"},
	{Target: "/readyz", Text: "Whether it takes calls, and why not"},
	{Target: "/metrics", Text: "Metrics"},
}

// homeOfAPI is the page at / of the API's address.
func homeOfAPI(roles Roles, ownOps bool) httpx.Home {
	page := httpx.Home{
		Title: "Annals: API", Text: what + "Programs call this address under /api/v1 with a project key.",
	}
	if roles.Has(RoleRead) {
		page.Links = append(page.Links, httpx.Link{Target: "/openapi.yaml", Text: "Every call of the API (OpenAPI)"})
	}
	if ownOps {
		page.Links = append(page.Links, operationLinks[0])
	} else {
		page.Links = append(page.Links, operationLinks...)
	}
	return page
}

// homeOfOperation is the page at / of the operators' address.
func homeOfOperation() httpx.Home {
	return httpx.Home{Title: "Annals: operation", Text: what + "This address is for operators.", Links: operationLinks}
}
