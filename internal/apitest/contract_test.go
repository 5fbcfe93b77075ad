package apitest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/apitest"
)

// document has ~ for the backticks of its descriptions.
var document = strings.ReplaceAll(`
openapi: 3.1.0
info: {title: A test, version: 1.0.0}
paths:
  /api/v1/things/{id}:
    get:
      responses:
        '200':
          description: A thing.
          content:
            application/json:
              schema: {$ref: '#/components/schemas/Thing'}
        '204': {description: Nothing.}
        '429': {description: Too many.}
        '404':
          description: None, or no ~more~ of it. Codes ~not-found~, ~used-up~.
          content:
            application/json:
              schema: {$ref: '#/components/schemas/Error'}
          x-error-data: {used-up: [limit]}
  /api/v1/polled:
    get:
      responses:
        '200': {description: Outside of the limit.}
components:
  schemas:
    Thing:
      type: object
      required: [id, at]
      properties:
        id: {type: string, format: uuid}
        at: {type: string, format: date-time}
        note: {type: string}
        kind: {anyOf: [{$ref: '#/components/schemas/Kind'}, {type: 'null'}]}
        any: {description: Anything.}
        half: {type: [integer, 'null'], minimum: 1}
    Kind: {type: string, x-extensible-enum: [memory, source], description: 'A ~memory~ or a ~source~.'}
    Error:
      type: object
      required: [code, status, debugMessage, data]
      properties:
        code: {type: string}
        status: {type: integer}
        debugMessage: {type: string}
        data: {type: object, additionalProperties: true}
`, "~", "`")

const thing = `{"id":"01890000-0000-7000-8000-00000000000a","at":"2026-11-21T09:00:00.123456Z"}`

func TestResponses_CheckedAgainstTheDocument(t *testing.T) {
	contract := apitest.Load(t, []byte(document))
	notFound := `{"code":"not-found","status":404,"debugMessage":"none","data":{}}`
	for name, c := range map[string]struct {
		path   string
		status int
		body   string
		header string
		wrong  string // "" where the response is right
	}{
		"right":                     {"/things/x", 200, thing, "", ""},
		"a note":                    {"/things/x", 200, strings.Replace(thing, "}", `,"note":"n"}`, 1), "", ""},
		"a listed value":            {"/things/x", 200, strings.Replace(thing, "}", `,"kind":"memory"}`, 1), "", ""},
		"null instead of a value":   {"/things/x", 200, strings.Replace(thing, "}", `,"kind":null,"half":null}`, 1), "", ""},
		"null as anything":          {"/things/x", 200, strings.Replace(thing, "}", `,"any":null}`, 1), "", ""},
		"another value":             {"/things/x", 200, strings.Replace(thing, "}", `,"kind":"claim"}`, 1), "", "kind"},
		"below the minimum":         {"/things/x", 200, strings.Replace(thing, "}", `,"half":0}`, 1), "", "half"},
		"the second code":           {"/things/x", 404, strings.NewReplacer("not-found", "used-up", "{}", `{"limit":1}`).Replace(notFound), "", ""},
		"a field of data missing":   {"/things/x", 404, strings.Replace(notFound, "not-found", "used-up", 1), "", "lacks limit"},
		"a code of its description": {"/things/x", 404, strings.Replace(notFound, "not-found", "more", 1), "", "the code is more"},
		"nothing":                   {"/things/x", 204, "", "", ""},
		"an envelope":               {"/things/x", 404, notFound, "", ""},
		"outside of the API":        {"", 200, "anything", "X-Request-Id:", ""},
		"a new field":               {"/things/x", 200, strings.Replace(thing, "}", `,"more":1}`, 1), "", "more"},
		"a field is missing":        {"/things/x", 200, `{"id":"01890000-0000-7000-8000-00000000000a"}`, "", "at"},
		"a field is null":           {"/things/x", 200, strings.Replace(thing, "}", `,"note":null}`, 1), "", "note"},
		"no UUID":                   {"/things/x", 200, strings.Replace(thing, "000a", "000A", 1), "", "no UUID"},
		"another zone":              {"/things/x", 200, strings.Replace(thing, "Z", "+01:00", 1), "", "no instant in UTC"},
		"nanoseconds":               {"/things/x", 200, strings.Replace(thing, "123456", "123456789", 1), "", "no instant in UTC"},
		"not JSON":                  {"/things/x", 200, thing, "Content-Type: text/plain", "text/plain"},
		"a status of its own":       {"/things/x", 201, thing, "", "status is not supported"},
		"a body of a 204":           {"/things/x", 204, thing, "", "a 204 has a body"},
		"another code":              {"/things/x", 404, strings.Replace(notFound, "not-found", "gone", 1), "", "code"},
		"data is null":              {"/things/x", 404, strings.Replace(notFound, "{}", "null", 1), "", "no envelope"},
		"another status in it":      {"/things/x", 404, strings.Replace(notFound, "404", "400", 1), "", "has status"},
		"an error as text":          {"/things/x", 404, "none", "Content-Type: text/plain", "want JSON"},
		"over the limit":            {"/things/x", 429, "", "Retry-After: 60", ""},
		"over it for no time":       {"/things/x", 429, "", "Retry-After: 0", "Retry-After"},
		"over it for ever":          {"/things/x", 429, "", "", "Retry-After"},
		"over it, with words":       {"/things/x", 429, "slow down", "Retry-After: 60", "not JSON"},
		"over it where none is":     {"/polled", 429, "", "Retry-After: 60", "outside of the limit"},
		"load, no time to wait":     {"/things/x", 503, strings.NewReplacer("404", "503", "not-found", "service-unavailable").Replace(notFound), "", "no Retry-After"},
		"no request id":             {"/things/x", 200, thing, "X-Request-Id:", "X-Request-Id"},
		"a request id of version 4": {"/things/x", 200, thing, "X-Request-Id: 11111111-1111-4111-8111-111111111111", "X-Request-Id"},
		"a browser is let in":       {"/things/x", 200, thing, "Access-Control-Allow-Origin: *", "Access-Control-Allow-Origin"},
		"no such route, refused":    {"/nothing", 404, notFound, "", ""},
		"no such route, answered":   {"/nothing", 200, "{}", "", "no such route"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "/api/v1" + c.path
			if c.path == "" {
				path = "/healthz"
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			header := http.Header{"X-Request-Id": {"01890000-0000-7000-8000-000000000001"}, "Content-Type": {"application/json"}}
			if name, value, ok := strings.Cut(c.header, ":"); ok {
				header[name] = []string{strings.TrimSpace(value)}
			}
			err = contract.Check(req, c.status, header, []byte(c.body))
			if c.wrong == "" && err != nil {
				t.Error(err)
			}
			if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("error %v, want %q", err, c.wrong)
			}
		})
	}
}
