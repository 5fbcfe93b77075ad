package why_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/why"
	"github.com/annals-project/annals/readapi"
)

var (
	project   = auth.Project{ID: uuid.UUID{1}}
	sendID    = uuid.MustParse("66666666-6666-4666-8666-666666666666")
	requestID = uuid.MustParse("77777777-7777-7777-8777-777777777777")
)

// fake has one send, or one logged call.
type fake struct {
	send *datapoints.Explained
	call requestlog.Call
}

func (f *fake) Explain(
	context.Context, auth.Project, uuid.UUID, int, eventstore.Position,
) (datapoints.Explained, bool, error) {
	if f.send == nil {
		return datapoints.Explained{}, false, nil
	}
	return *f.send, true, nil
}

func (*fake) Position(context.Context, string) (eventstore.Position, error) { return 7, nil }

func (f *fake) Get(context.Context, uuid.UUID, uuid.UUID) (requestlog.Call, error) {
	return f.call, nil
}

// Each row of the table is reached, and the document prints the table.
func TestNext_EachRowIsReached(t *testing.T) {
	f := &fake{}
	explained := func(id uuid.UUID) why.Explanation {
		t.Helper()
		got, err := why.Explainer{Sends: f, Progress: f, Calls: f}.Explain(t.Context(), project, id)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	reached := map[string]bool{}
	for _, c := range []struct {
		send datapoints.Explained
		code string
		next string
	}{
		{send: datapoints.Explained{Phase: "queued"}, next: "Wait: the send is stored"},
		{send: datapoints.Explained{Phase: "processing"}, next: "Wait: memory is being derived"},
		{send: datapoints.Explained{Phase: "captured"}, next: "Wait: the memories are stored"},
		{send: datapoints.Explained{Phase: "indexed"}, next: "Nothing: recall finds"},
		{send: datapoints.Explained{Phase: "indexed", Deleted: true}, next: "Nothing: what was sent is deleted"},
		{send: datapoints.Explained{Phase: "nothing-changed"}, next: "Nothing: the same was stored before"},
		{send: datapoints.Explained{Phase: "failed"}, code: "internal", next: "Nothing: each data point that failed"},
		{send: datapoints.Explained{Phase: "failed", FailureOpen: true}, code: "model-unavailable", next: "Check that the model"},
		{
			send: datapoints.Explained{Phase: "failed", FailureOpen: true}, code: "model-response-unreadable",
			next: "Retry with POST /api/v1/ingest/{ingestionId}/retry, which asks",
		},
		{send: datapoints.Explained{Phase: "failed", FailureOpen: true}, code: "index-unavailable", next: "Wait until /readyz"},
		{send: datapoints.Explained{Phase: "failed", FailureOpen: true}, code: "content-rejected", next: "Change the content"},
		{
			send: datapoints.Explained{Phase: "failed", FailureOpen: true}, code: "internal",
			next: "Retry with POST /api/v1/ingest/{ingestionId}/retry; if",
		},
	} {
		c.send.ID, c.send.RequestID = sendID, requestID
		if c.code != "" {
			c.send.Failure = &datapoints.Failure{Code: c.code, Message: "m"}
		}
		f.send = &c.send
		got := explained(sendID)
		reached[got.Next] = true
		if !strings.HasPrefix(got.Next, c.next) || !strings.HasSuffix(got.Next, ".") || strings.Count(got.Next, ". ") > 0 {
			t.Errorf("%s %s: next is %q", c.send.Phase, c.code, got.Next)
		}
		if got.Send == nil || got.RequestID != requestID || got.Retryable != (c.code != "content-rejected") {
			t.Errorf("%s: %+v", c.code, got)
		}
	}
	f.send = nil
	for _, c := range []struct {
		status int
		code   string
		next   string
	}{
		{200, "", "Nothing: the call was answered"},
		{400, "invalid-request", "Correct the call"},
		{400, "audience-unknown", "Create the audience"},
		{413, "content-too-large", "Cut the content"},
		{413, "webhook-body-too-large", "Let the sender send smaller events"},
		{409, "webhook-paused", "Resume the webhook"},
		{409, "idempotency-conflict", "Send this payload under another"},
		{409, "data-point-deleted", "Send the text under a new id"},
		{409, "ingestion-not-stopped", "Wait: only a failed send"},
		{409, "conflict", "Send the same call again: another"},
		{402, "out-of-credits", "Buy credits"},
		{429, "project-cap-reached", "Raise the cap"},
		{400, "audience-limit-reached", "Remove what is no longer needed"},
		{400, "project-mismatch", "Name the project"},
		{401, "unauthorized", "Use a key"},
		{403, "project-archived", "Unarchive the project"},
		{403, "cors-refused", "Call the service from a server"},
		{404, "data-point-not-found", "Check the id"},
		{503, "service-unavailable", "Send the same call again after its Retry-After"},
		{503, "pipeline-disabled", "Start the service with"},
		{500, "internal", "Send the call again; if"},
		{418, "of-a-newer-program", "Correct the call"},
		{502, "of-a-newer-program", "Send the call again; if"},
	} {
		f.call = requestlog.Call{Entry: requestlog.Entry{RequestID: requestID, Status: c.status, ErrorCode: c.code}}
		got := explained(requestID)
		reached[got.Next] = true
		want := why.Explanation{RequestID: requestID, Status: c.status, ErrorCode: c.code, Next: got.Next}
		if got != want || !strings.HasPrefix(got.Next, c.next) {
			t.Errorf("%d %s: %+v, want next %q", c.status, c.code, got, c.next)
		}
	}
	for _, next := range why.NextSentences() {
		if !reached[next] {
			t.Errorf("no case reaches %q", next)
		}
	}
	path := apitest.Load(t, readapi.OpenAPI).Document().Paths.Find("/api/v1/ingest/{ingestionId}/explain")
	var printed []string
	for line := range strings.Lines(path.Get.Description) {
		if strings.HasPrefix(line, "|") {
			printed = append(printed, line)
		}
	}
	if want := slices.Collect(strings.Lines(why.NextTable())); !slices.Equal(want, printed) {
		t.Errorf("the OpenAPI document prints\n%s\nwant\n%s", strings.Join(printed, ""), strings.Join(want, ""))
	}
}

// Every public code has a row.
func TestNext_OfEveryCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../domain/fault/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		text, is := n.(*ast.BasicLit)
		if !is {
			return true
		}
		code, err := strconv.Unquote(text.Value)
		if err != nil {
			t.Error(err)
		}
		codes++
		if !why.HasNext(code) {
			t.Errorf("no row is for %s", code)
		}
		return true
	})
	if codes < 40 {
		t.Errorf("there are %d codes", codes)
	}
}
