package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/readapi"
)

// id is an id of every kind.
const id = "01987c1e-5a00-7000-8000-000000000001"

var (
	fullPoint = client.DataPoint{
		Content: "tea", ID: "a/b", Label: "l", Timestamp: "2025-05-12", Metadata: json.RawMessage(`{"a":1}`),
		Audience: "finance", Identity: "ana", Private: true,
	}
	fullRule = client.Rule{Match: client.MatchAll, Conditions: []client.Condition{
		{Trait: "team", Operator: client.OperatorIs, Values: []string{"x"}},
	}}
	fullFilter = client.RequestFilter{
		From: "2026-01-01", To: "2026-01-02", Status: []int{200, 400}, StatusClass: []string{"2xx"},
		Endpoint: []string{"POST /api/v1/ingest"}, KeyName: []string{"k"}, Search: "s",
	}
)

// clientCalls makes the call of each operation with every field of its request.
var clientCalls = map[string]func(context.Context, *client.Client) (any, error){
	"ingest": func(ctx context.Context, c *client.Client) (any, error) {
		p := fullPoint
		p.IdempotencyKey = "key"
		return c.Ingest(ctx, p)
	},
	"ingestBatch": func(ctx context.Context, c *client.Client) (any, error) {
		return c.IngestBatch(ctx, client.Batch{Items: []client.DataPoint{fullPoint}, IdempotencyKey: "key"})
	},
	"estimate": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Estimate(ctx, client.EstimateRequest{
			Files: []client.EstimateFile{{Path: "a.md", Content: "tea", Kind: client.KindNotes}},
			Items: []client.DataPoint{fullPoint}, TimeZone: "UTC", Points: client.PointsSummary,
		})
	},
	"getIngestion":     func(ctx context.Context, c *client.Client) (any, error) { return c.GetIngestion(ctx, id) },
	"deleteIngestion":  func(ctx context.Context, c *client.Client) (any, error) { return nil, c.DeleteIngestion(ctx, id) },
	"retryIngestion":   func(ctx context.Context, c *client.Client) (any, error) { return c.RetryIngestion(ctx, id) },
	"explainIngestion": func(ctx context.Context, c *client.Client) (any, error) { return c.ExplainIngestion(ctx, id) },
	"deleteDataPoint":  func(ctx context.Context, c *client.Client) (any, error) { return c.DeleteDataPoint(ctx, "é ?") },
	"deleteDataPoints": func(ctx context.Context, c *client.Client) (any, error) {
		return c.DeleteDataPoints(ctx, []string{"a/b"})
	},
	"recall": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Recall(ctx, client.RecallRequest{
			Query: "q", Identity: "ana", Limit: 3, Level: client.LevelHigh, MaxTokens: 5, QueryTimestamp: "2025-05-12",
			OccurredFrom: "2025-05-12", OccurredTo: "2025-05-12", Sort: client.SortChronological,
		})
	},
	"listIdentities": func(ctx context.Context, c *client.Client) (any, error) {
		return c.InProject("p").ListIdentities(ctx,
			client.ListIdentitiesRequest{After: "x", Limit: 2, TraitKey: "team", TraitValue: "finance"})
	},
	"putIdentities": func(ctx context.Context, c *client.Client) (any, error) {
		return c.InProject("p").PutIdentities(ctx, []client.IdentityRow{{Identity: "ana", Traits: map[string]string{"a": "b"}}})
	},
	"getIdentity": func(ctx context.Context, c *client.Client) (any, error) {
		return c.InProject("p").GetIdentity(ctx, "a/b")
	},
	"putIdentity": func(ctx context.Context, c *client.Client) (any, error) {
		return c.InProject("p").PutIdentity(ctx, client.IdentityRow{Identity: "ana", Traits: map[string]string{"a": "b"}})
	},
	"patchIdentity": func(ctx context.Context, c *client.Client) (any, error) {
		return c.InProject("p").PatchIdentity(ctx,
			client.IdentityPatch{Identity: "ana", Traits: map[string]*string{"team": nil}})
	},
	"deleteIdentity": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.InProject("p").DeleteIdentity(ctx, "ana")
	},
	"listAudiences": func(ctx context.Context, c *client.Client) (any, error) { return c.ListAudiences(ctx) },
	"getAudience":   func(ctx context.Context, c *client.Client) (any, error) { return c.GetAudience(ctx, "finance") },
	"putAudience": func(ctx context.Context, c *client.Client) (any, error) {
		return c.PutAudience(ctx, client.AudiencePut{
			Slug: "finance", Kind: client.AudienceFixed, Name: "n", Identities: []string{}, Rule: &fullRule,
		})
	},
	"deleteAudience": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.DeleteAudience(ctx, "finance")
	},
	"recomputeAudience": func(ctx context.Context, c *client.Client) (any, error) {
		return c.RecomputeAudience(ctx, "finance")
	},
	"listProjects": func(ctx context.Context, c *client.Client) (any, error) { return c.ListProjects(ctx) },
	"createProject": func(ctx context.Context, c *client.Client) (any, error) {
		return c.CreateProject(ctx, client.NewProject{Name: "n"})
	},
	"createProjectKey": func(ctx context.Context, c *client.Client) (any, error) {
		return c.CreateProjectKey(ctx, client.NewProjectKey{Project: "planning", Name: "n"})
	},
	"revokeProjectKey": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.RevokeProjectKey(ctx, "planning", id)
	},
	"listRoots": func(ctx context.Context, c *client.Client) (any, error) {
		return c.ListRoots(ctx, client.ListRootsRequest{
			Search: "s", IngestionID: id, First: 2, AfterMemories: "m", AfterSources: "s",
		})
	},
	"getNode": func(ctx context.Context, c *client.Client) (any, error) { return c.GetNode(ctx, id) },
	"getLineage": func(ctx context.Context, c *client.Client) (any, error) {
		return c.GetLineage(ctx, client.LineageRequest{
			RootID: id, RevealAll: true, Reveal: []string{id + ":inputs", id + ":outputs"}, Limit: 3,
		})
	},
	"getTimeline": func(ctx context.Context, c *client.Client) (any, error) {
		return c.GetTimeline(ctx, client.TimelineRequest{RootID: id, From: "2026-01-01", To: "2026-01-02"})
	},
	"listRequests": func(ctx context.Context, c *client.Client) (any, error) {
		return c.ListRequests(ctx, client.ListRequestsRequest{RequestFilter: fullFilter, After: "x", First: 2})
	},
	"countRequests":  func(ctx context.Context, c *client.Client) (any, error) { return c.CountRequests(ctx, fullFilter) },
	"getRequest":     func(ctx context.Context, c *client.Client) (any, error) { return c.GetRequest(ctx, id) },
	"getUsage":       func(ctx context.Context, c *client.Client) (any, error) { return c.GetUsage(ctx) },
	"getCheckpoint":  func(ctx context.Context, c *client.Client) (any, error) { return c.GetCheckpoint(ctx, id) },
	"getAuditPolicy": func(ctx context.Context, c *client.Client) (any, error) { return c.GetAuditPolicy(ctx, id) },
	"getTile": func(ctx context.Context, c *client.Client) (any, error) {
		return c.GetTile(ctx, client.TileRequest{Organization: id, Level: "0", Path: "x001/067.p/12"})
	},
	"getProofs": func(ctx context.Context, c *client.Client) (any, error) {
		return c.GetProofs(ctx, client.ProofsRequest{
			Organization: id, Ingestion: id, Source: "s", Request: id, Deletion: id, Project: "p",
		})
	},
	"receiveEvent": func(ctx context.Context, c *client.Client) (any, error) {
		return c.ReceiveEvent(ctx, client.Event{WebhookID: "whk_1", Token: "t", Body: []byte(`{"content":"tea"}`)})
	},
}

// The client has a method for every operation of the document. It sends what the document describes, with every
// parameter and field, and reads every field of the answer.
func TestClient_EveryOperation(t *testing.T) {
	contract := loadOpen(t)
	for template, item := range contract.doc.Paths.Map() {
		for method, op := range item.Operations() {
			t.Run(op.OperationID, func(t *testing.T) {
				name := strings.ToUpper(op.OperationID[:1]) + op.OperationID[1:]
				if _, ok := reflect.TypeFor[*client.Client]().MethodByName(name); !ok {
					t.Fatalf("the client has no method %s", name)
				}
				do, ok := clientCalls[op.OperationID]
				if !ok {
					t.Fatal("the test has no call")
				}
				status, example := successOf(t, op)
				asked := 0
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked++
					checkRequest(t, contract, template, method, r)
					w.WriteHeader(status)
					_, _ = w.Write(example)
				}))
				defer server.Close()
				c, err := client.New(server.URL, ProjectKey, client.WithMaxAttempts(1))
				if err != nil {
					t.Fatal(err)
				}
				got, err := do(t.Context(), c)
				if err != nil || asked != 1 {
					t.Fatalf("asked %d times, %v", asked, err)
				}
				if got == nil {
					return
				}
				if text, ok := got.([]byte); ok {
					if !bytes.Equal(text, example) {
						t.Errorf("the client read %q, want %q", text, example)
					}
					return
				}
				compareJSON(t, example, got)
				schema := op.Responses.Status(status).Value.Content["application/json"].Schema
				compareFields(t, op.OperationID, schema, reflect.TypeOf(got).Elem())
			})
		}
	}
	if calls, in := len(clientCalls), len(operations(contract.doc)); calls != in {
		t.Errorf("the test calls %d operations, the document has %d", calls, in)
	}
}

// loadOpen loads the document without closing its schemas: a closed part of allOf refuses the fields of the others.
func loadOpen(t *testing.T) *Contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(readapi.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range doc.Components.Schemas {
		if err := ref.WalkSubtree(readSchema); err != nil {
			t.Fatal(err)
		}
	}
	validated := *doc
	validated.OpenAPI = "3.0.3"
	return &Contract{doc: doc, validated: &validated}
}

func operations(doc *openapi3.T) (all []*openapi3.Operation) {
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			all = append(all, op)
		}
	}
	return all
}

// successOf returns the success of an operation that has an example, and the example.
func successOf(t *testing.T, op *openapi3.Operation) (int, []byte) {
	t.Helper()
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent} {
		response := op.Responses.Status(status)
		if response == nil {
			continue
		}
		if media := response.Value.Content["application/json"]; media != nil && media.Example != nil {
			text, err := json.Marshal(media.Example)
			if err != nil {
				t.Fatal(err)
			}
			return status, text
		}
		for kind, media := range response.Value.Content {
			if text, ok := media.Example.(string); ok && kind == "text/plain" {
				return status, []byte(text)
			}
			if media.Schema.Value.Format == "binary" { // it has no example
				return status, []byte("\x00\xff")
			}
		}
		if status == http.StatusNoContent {
			return status, nil
		}
	}
	t.Fatal("the document has no example of a success")
	return 0, nil
}

// checkRequest holds a request against the document: the route, its parameters, and each field of the body.
func checkRequest(t *testing.T, contract *Contract, template, method string, r *http.Request) {
	t.Helper()
	route := contract.route(r.Method, r.URL.EscapedPath())
	if route == nil || route.Path != template || route.Method != method {
		t.Fatalf("%s %s is another route", r.Method, r.URL.EscapedPath())
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	values := map[string]string{}
	want, sent := strings.Split(template, "/"), strings.Split(r.URL.EscapedPath(), "/")
	for i, part := range want {
		if strings.HasPrefix(part, "{") {
			values[strings.Trim(part, "{}")] = sent[i]
		}
	}
	err = openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: values, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true},
	})
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if open := len(*route.Operation.Security) == 0; open != (r.Header.Get("Authorization") == "") {
		t.Errorf("Authorization is %q", r.Header.Get("Authorization"))
	}
	var inDocument []string
	for _, p := range route.Operation.Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			inDocument = append(inDocument, p.Value.Name)
		}
	}
	slices.Sort(inDocument)
	var inQuery []string
	for name := range r.URL.Query() {
		inQuery = append(inQuery, name)
	}
	slices.Sort(inQuery)
	if diff := cmp.Diff(inDocument, inQuery); diff != "" {
		t.Errorf("parameters of the query: %s", diff)
	}
	if route.Operation.RequestBody == nil || route.Operation.OperationID == "receiveEvent" {
		return
	}
	var body any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	if rows, ok := body.([]any); ok {
		body = rows[0]
	}
	properties := propertiesOf(route.Operation.RequestBody.Value.Content["application/json"].Schema)
	fields := body.(map[string]any)
	for name := range properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("the body has no %s: %s", name, text)
		}
	}
	for name := range fields {
		if properties[name] == nil {
			t.Errorf("the document has no %s of the body: %s", name, text)
		}
	}
}

// compareJSON compares what was read from an example with the example. Null is the same as nothing.
func compareJSON(t *testing.T, example []byte, got any) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var want, is any
	for from, into := range map[*[]byte]*any{&example: &want, &text: &is} {
		if err := json.Unmarshal(*from, into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(withoutNull(want), withoutNull(is)); diff != "" {
		t.Errorf("the client does not read all of the answer: %s", diff)
	}
}

func withoutNull(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, v := range value {
			if v != nil {
				kept[name] = withoutNull(v)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, v := range value {
			kept[i] = withoutNull(v)
		}
		return kept
	}
	return value
}

// propertiesOf returns the properties of a schema and of those that it is made of, or of the elements of an array.
func propertiesOf(ref *openapi3.SchemaRef) map[string]*openapi3.SchemaRef {
	all := map[string]*openapi3.SchemaRef{}
	if ref.Value.Type.Is("array") {
		return propertiesOf(ref.Value.Items)
	}
	for name, p := range ref.Value.Properties {
		all[name] = p
	}
	for _, parts := range []openapi3.SchemaRefs{ref.Value.AllOf, ref.Value.OneOf, ref.Value.AnyOf} {
		for _, part := range parts {
			for name, p := range propertiesOf(part) {
				all[name] = p
			}
		}
	}
	return all
}

// compareFields compares the properties of a schema with the fields of a type, down to the last: each has the other,
// and a property that may be null is a field that may be nil.
func compareFields(t *testing.T, where string, ref *openapi3.SchemaRef, of reflect.Type) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice && of != reflect.TypeFor[json.RawMessage]() {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return
	}
	if ref.Value.Type.Includes("array") {
		ref = ref.Value.Items
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous {
			fields[name] = f.Type
		}
	}
	properties := propertiesOf(ref)
	for name, p := range properties {
		field, ok := fields[name]
		if !ok {
			t.Errorf("%s: %s has no field of %s", where, of, name)
			continue
		}
		isNull := func(r *openapi3.SchemaRef) bool { return r.Value.Type.Is("null") }
		nullable := p.Value.Type.Includes("null") || slices.ContainsFunc(p.Value.AnyOf, isNull)
		switch field.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
		default:
			if nullable {
				t.Errorf("%s: %s of %s may be null, and %s may not", where, name, of, field)
			}
		}
		compareFields(t, where, p, field)
	}
	for name := range fields {
		if properties[name] == nil {
			t.Errorf("%s: the document has no %s of %s", where, name, of)
		}
	}
}
