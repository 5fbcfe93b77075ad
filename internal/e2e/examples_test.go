package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/readapi"
)

// updateExamples is the setting with which TestExamples writes the examples that differ.
const updateExamples = "ANNALS_UPDATE_EXAMPLES"

// document is the file that readapi.OpenAPI is.
const document = "../../readapi/openapi.yaml"

// example is a call of an operation with the request of its example.
type example struct {
	operation string
	status    int
	// keep reads from the answer the parameters of later calls.
	keep func(kept map[string]string, answer map[string]any)
	// until is true of an answer that is not to be awaited any longer; nil takes the first.
	until func(answer map[string]any) bool
	// varies is true of an answer whose order or length depends on ids or on the time: it is written
	// only if its shape differs.
	varies bool
	// before prepares what the call needs besides.
	before func(x *examples)
}

// inOrder are the calls in an order in which each has what it needs.
var inOrder = []example{
	{operation: "putIdentity", status: 200},
	{operation: "putIdentities", status: 200},
	{operation: "patchIdentity", status: 200},
	{operation: "putAudience", status: 201},
	{operation: "getAudience", status: 200},
	{operation: "recomputeAudience", status: 200},
	{operation: "listAudiences", status: 200},
	{operation: "estimate", status: 200},
	{operation: "ingest", status: 202, keep: func(kept map[string]string, answer map[string]any) {
		kept["ingestionId"] = text(answer, "ingestionId")
	}},
	{operation: "getIngestion", status: 200, until: func(answer map[string]any) bool { return answer["settled"] == true }},
	{operation: "ingestBatch", status: 202, keep: func(kept map[string]string, answer map[string]any) {
		kept["batch"] = text(answer, "ingestionId")
	}},
	{operation: "explainIngestion", status: 200, keep: func(kept map[string]string, answer map[string]any) {
		kept["id"], kept["requestId"] = text(answer, "items", 0, "sourceId"), text(answer, "requestId")
	}},
	{operation: "recall", status: 200, before: (*examples).settle, keep: func(kept map[string]string, answer map[string]any) {
		kept["rootId"] = text(answer, "results", 0, "id")
	}},
	{operation: "getIdentity", status: 200},
	{operation: "listIdentities", status: 200},
	{operation: "listRoots", status: 200, varies: true},
	{operation: "getNode", status: 200},
	{operation: "getLineage", status: 200},
	{operation: "getTimeline", status: 200, until: func(answer map[string]any) bool { return len(answer["recalls"].([]any)) > 0 }},
	{operation: "listRequests", status: 200, until: func(answer map[string]any) bool { return len(answer["requests"].([]any)) > 0 }},
	{operation: "getRequest", status: 200},
	{operation: "countRequests", status: 200, varies: true, before: func(x *examples) {
		x.kept["from"] = time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
	}},
	{operation: "getUsage", status: 200},
	{operation: "createProject", status: 201},
	{operation: "createProjectKey", status: 201, keep: func(kept map[string]string, answer map[string]any) {
		kept["keyId"] = text(answer, "id")
	}},
	{operation: "revokeProjectKey", status: 204},
	{operation: "listProjects", status: 200},
	{operation: "getCheckpoint", status: 200, before: func(x *examples) {
		x.kept["organization"] = x.organizationID(ownOrganization)
	}},
	{operation: "getAuditPolicy", status: 200},
	{operation: "getTile", status: 200},
	{operation: "getProofs", status: 200, before: func(x *examples) { x.kept["ingestion"] = x.kept["ingestionId"] }},
	{operation: "receiveEvent", status: 202, before: func(x *examples) {
		x.kept["webhookId"], x.kept["token"] = x.newWebhook(ownOrganization, "default")
	}},
	{operation: "retryIngestion", status: 202, before: (*examples).stop},
	{operation: "deleteDataPoint", status: 202},
	{operation: "deleteDataPoints", status: 202},
	{operation: "deleteIngestion", status: 204},
	{operation: "deleteIdentity", status: 204},
	{operation: "deleteAudience", status: 204},
}

// text is the string at a path of keys and positions of an answer, "" if there is none.
func text(answer any, path ...any) string {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := answer.(map[string]any)
			answer = object[step]
		case int:
			list, _ := answer.([]any)
			if len(list) <= step {
				return ""
			}
			answer = list[step]
		}
	}
	found, _ := answer.(string)
	return found
}

// examples is a service with what the calls so far have made.
type examples struct {
	*tenancy
	key        string
	operations map[string]operation
	kept       map[string]string
}

type operation struct {
	*openapi3.Operation
	method, path string
}

// TestExamples makes every call of inOrder with the request that is its example in the OpenAPI
// document, and compares the shape of the answer with the example of it. With ANNALS_UPDATE_EXAMPLES
// it writes the answers into the document, where more than ids and times differ.
func TestExamples(t *testing.T) {
	t.Parallel()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	contract := apitest.Load(t, readapi.OpenAPI)
	x := &examples{
		tenancy: &tenancy{
			service: newService(t, sharedPostgres(t), "ANNALS_AUDIT_SECONDS=1"),
			http:    &http.Client{Transport: contract.Transport(t, transport)},
		},
		operations: map[string]operation{},
		kept:       map[string]string{},
	}
	for path, item := range contract.Document().Paths.Map() {
		for method, op := range item.Operations() {
			x.operations[op.OperationID] = operation{Operation: op, method: method, path: path}
		}
	}
	if len(x.operations) != len(inOrder) {
		t.Errorf("the document has %d operations, and %d are called", len(x.operations), len(inOrder))
	}
	x.start()
	x.key, x.management = x.credentials()["ANNALS_PROJECT_KEY"], x.credentials()["ANNALS_MANAGEMENT_KEY"]
	lines := strings.SplitAfter(string(readapi.OpenAPI), "\n")
	for _, e := range inOrder {
		lines = x.compare(e, lines)
	}
	if os.Getenv(updateExamples) != "" && !t.Failed() {
		runtest.Must(t, os.WriteFile(document, []byte(strings.Join(lines, "")), 0o644)) //nolint:gosec // it is a source file
	}
}

// compare makes a call, and returns the lines of the document with its answer where it is to be written.
func (x *examples) compare(e example, lines []string) []string {
	x.t.Helper()
	if e.before != nil {
		e.before(x)
	}
	op, ok := x.operations[e.operation]
	if !ok {
		x.t.Fatalf("the document has no operation %s", e.operation)
	}
	var body []byte
	var answer map[string]any
	runtest.Await(x.t, e.operation+" has the answer that it is called for", func() bool {
		var status int
		status, body = x.request(op)
		if status == http.StatusServiceUnavailable || status == http.StatusNotFound && op.method == http.MethodGet {
			return false // refused for load, or not in the request log yet
		}
		if status != e.status {
			x.t.Fatalf("%s: %d %s, want %d", e.operation, status, body, e.status)
		}
		if media := op.Responses.Status(e.status).Value.Content; len(body) > 0 && media["application/json"] != nil {
			answer = nil
			runtest.Must(x.t, json.Unmarshal(body, &answer))
		}
		return e.until == nil || e.until(answer)
	})
	if e.keep != nil {
		e.keep(x.kept, answer)
	}
	media := op.Responses.Status(e.status).Value.Content["application/json"]
	if media == nil {
		return lines
	}
	diff := cmp.Diff(shape(media.Example), shape(answer))
	if os.Getenv(updateExamples) != "" {
		if fixed(media.Example) != fixed(answer) && !e.varies || diff != "" {
			lines = x.write(lines, e, body)
		}
		return lines
	}
	if diff != "" {
		x.t.Errorf("%s: the example and the answer have other shapes (-example +answer); make examples writes it:\n%s", e.operation, diff)
	}
	return lines
}

// request sends the example request of an operation.
func (x *examples) request(op operation) (status int, answer []byte) {
	x.t.Helper()
	path, query := op.path, url.Values{}
	for _, ref := range op.Parameters {
		p := ref.Value
		if p.Example == nil {
			if p.Required {
				x.t.Fatalf("%s: the parameter %s has no example", op.OperationID, p.Name)
			}
			continue
		}
		values, several := p.Example.([]any)
		if !several {
			values = []any{p.Example}
		}
		for _, value := range values {
			value := fmt.Sprint(value)
			if kept := x.kept[p.Name]; kept != "" {
				value = kept
			}
			if p.In == openapi3.ParameterInQuery {
				query.Add(p.Name, value)
			} else {
				path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
			}
		}
	}
	var body []byte
	if op.RequestBody != nil {
		var err error
		body, err = json.Marshal(op.RequestBody.Value.Content["application/json"].Example)
		runtest.Must(x.t, err)
	}
	req, err := http.NewRequestWithContext(x.t.Context(), op.method, "http://"+x.addr+path+"?"+query.Encode(), bytes.NewReader(body))
	runtest.Must(x.t, err)
	req.Header.Set("User-Agent", "example/1.0")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	takes := func(scheme string) bool {
		return slices.ContainsFunc(*op.Security, func(r openapi3.SecurityRequirement) bool { _, ok := r[scheme]; return ok })
	}
	switch {
	case takes("projectKey"):
		req.Header.Set("Authorization", "Bearer "+x.key)
	case takes("managementKey"):
		req.Header.Set("Authorization", "Bearer "+x.management)
	}
	res, err := x.http.Do(req)
	runtest.Must(x.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	runtest.Must(x.t, err)
	return res.StatusCode, answer
}

// settle waits until recall finds what the batch brought.
func (x *examples) settle() {
	x.t.Helper()
	x.await(x.kept["batch"], "completed")
}

// stop sends what cannot be derived, and waits until it has failed.
func (x *examples) stop() {
	x.t.Helper()
	sent := x.must(x.key, http.MethodPost, "/ingest", `{"id":"no-words","content":"... !!! ---"}`)
	x.kept["ingestionId"] = text(sent, "ingestionId")
	x.await(x.kept["ingestionId"], "failed")
}

func (x *examples) await(send, status string) {
	x.t.Helper()
	runtest.Await(x.t, "send "+send+" is "+status, func() bool {
		return x.must(x.key, http.MethodGet, "/ingest/"+send, "")["status"] == status
	})
}

// shape is a value without what may differ between two answers to one request: strings, numbers, and
// how often an array has entries of one shape.
func shape(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for name, field := range value {
			fields[name] = shape(field)
		}
		return fields
	case []any:
		entries := make([]string, len(value))
		for i, entry := range value {
			entries[i] = compact(shape(entry))
		}
		slices.Sort(entries)
		return slices.Compact(entries)
	case nil:
		return "null"
	default:
		return fmt.Sprintf("%T", value)
	}
}

// compact is a value as JSON, with the fields of objects sorted.
func compact(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

var (
	madeUp = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|` +
		`evt_\w+|svc_sk_\w+|"key(Prefix|Suffix)":"\w+"|"endCursor":"[\w-]+"|"durationMs":[0-9.]+|127\.0\.0\.1:\d+`)
	secretKey = regexp.MustCompile(`svc_sk_\w{32,}`)
)

// fixed is an answer without ids, times and what else another installation has differently.
func fixed(answer any) string { return madeUp.ReplaceAllString(compact(answer), "") }

// write replaces the example of an answer in the lines of the document.
func (x *examples) write(lines []string, e example, answer []byte) []string {
	x.t.Helper()
	next := func(from int, prefix string) int {
		for i := from; i < len(lines); i++ {
			if strings.HasPrefix(lines[i], prefix) {
				return i
			}
		}
		x.t.Fatalf("%s: after line %d no line begins with %q", e.operation, from, prefix)
		return 0
	}
	const indent = "              "
	at := next(0, "      operationId: "+e.operation+"\n")
	at = next(at, fmt.Sprintf("        '%d':", e.status))
	at = next(at, indent+"schema:") + 1
	for strings.HasPrefix(lines[at], indent+" ") {
		at++
	}
	end := at
	if strings.HasPrefix(lines[at], indent+"example:") {
		for end++; strings.HasPrefix(lines[end], indent+" "); end++ {
		}
	}
	answer = secretKey.ReplaceAll(answer, []byte("svc_sk_"+strings.Repeat("0", 32)))
	var block bytes.Buffer
	block.WriteString(indent + "example:\n" + indent + "  ")
	runtest.Must(x.t, json.Indent(&block, bytes.TrimSpace(answer), indent+"  ", "  "))
	block.WriteString("\n")
	return slices.Concat(lines[:at], strings.SplitAfter(block.String(), "\n"), lines[end:])
}
