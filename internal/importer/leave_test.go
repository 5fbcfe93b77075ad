package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	client "github.com/annals-project/annals/client"
)

// strict is a server that refuses a batch for its items, as the service does.
type strict struct {
	server
	deleted   []string
	audiences []string
	// wrong is a content that no request may have.
	wrong string
	keys  []string
}

func (s *strict) IngestBatch(ctx context.Context, b client.Batch) (*client.BatchReceipt, error) {
	var deleted []string
	for i, raw := range b.RawItems {
		var p client.DataPoint
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		at := fmt.Sprintf("items[%d]", i)
		switch {
		case slices.Contains(s.deleted, p.ID):
			deleted = append(deleted, p.ID)
		case p.Audience != "" && !slices.Contains(s.audiences, p.Audience):
			return nil, &client.APIError{
				Status: 400, Code: "audience-unknown", Message: at + ": the project has no audience", Data: fmt.Appendf(nil, `{"item":%d}`, i),
			}
		case s.wrong != "" && p.Content == s.wrong:
			return nil, &client.APIError{Status: 400, Code: "invalid-request", Message: at + ".content: is wrong"}
		}
	}
	if len(deleted) > 0 {
		data, err := json.Marshal(map[string]any{"ids": deleted, "item": 0})
		if err != nil {
			return nil, err
		}
		// The place is that of the first one in the batch.
		first := slices.IndexFunc(b.RawItems, func(raw json.RawMessage) bool { return strings.Contains(string(raw), `"`+deleted[0]+`"`) })
		data = []byte(strings.Replace(string(data), `"item":0`, fmt.Sprintf(`"item":%d`, first), 1))
		return nil, &client.APIError{Status: 409, Code: "data-point-deleted", Message: "items: deleted", Data: data}
	}
	s.keys = append(s.keys, b.IdempotencyKey)
	return s.server.IngestBatch(ctx, b)
}

// items writes data points "id content audience".
func items(points ...string) string {
	var b strings.Builder
	for _, p := range points {
		parts := append(strings.Split(p, " "), "")
		line, err := Line(client.DataPoint{ID: parts[0], Content: parts[1], Audience: parts[2]})
		if err != nil {
			panic(err)
		}
		b.Write(line)
	}
	return b.String()
}

// Items that are refused for themselves are left out by name, and the rest is sent; so does another run.
func TestImport_LeavesOutRefusedItems(t *testing.T) {
	points := items("a one", "b two", "c three hall", "d four", "e five crew", "f six hall", "g seven", "h eight")
	s := &strict{deleted: []string{"b", "g", "not here"}, audiences: []string{"crew"}, wrong: "four"}
	var keys []string
	for range 2 {
		begin := NewState(Target{Server: "s"})
		state, err := Import{To: s, In: strings.NewReader(points), State: begin, Parallel: 1}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []LeftOut{
			{ID: "b", Reason: "was deleted before", Deleted: true, Line: 2},
			{ID: "c", Reason: `the project has no audience "hall"`, Line: 3},
			{ID: "d", Reason: "content: is wrong", Line: 4},
			{ID: "f", Reason: `the project has no audience "hall"`, Line: 6},
			{ID: "g", Reason: "was deleted before", Deleted: true, Line: 7},
		}
		if diff := cmp.Diff(want, state.Left, cmpopts.IgnoreFields(LeftOut{}, "Item")); diff != "" {
			t.Error(diff)
		}
		if state.Points != 3 || state.Deleted != 2 || state.Refused != 3 || state.Offset != int64(len(points)) {
			t.Errorf("the state is %+v", state)
		}
		keys = append(keys, s.keys...)
		s.keys = nil
	}
	if got := strings.Join(s.taken, " "); got != "one five eight one five eight" {
		t.Errorf("sent %s", got)
	}
	if len(keys) != 2 || keys[0] == keys[1] || !strings.Contains(keys[0], "-rest-") {
		t.Errorf("the keys are %q", keys) // of two imports, each under the key of its rest
	}
}

// A batch of which nothing is left is done, and so is a file of which all was refused.
func TestFiles_LeavesOutRefusedItems(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p")
	for run := range 2 {
		s := &strict{deleted: []string{"of 1", "of 2", "of 3"}}
		total, err := Files{To: s, Spool: spoolOf(t, &estimator{}, "1 2 3 4"), State: stateAt(t, path), Parallel: 1}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, l := range total.Left {
			left = append(left, fmt.Sprintf("%s in %s %v", l.ID, l.Path, l.Deleted))
		}
		want := []string{"of 1 in 1 true", "of 2 in 2 true", "of 3 in 3 true"}
		if diff := cmp.Diff(want, left); diff != "" || total.Points != 1 || total.Batches != 2 || total.Sent != 1-run {
			t.Errorf("run %d: %+v\n%s", run, total, diff)
		}
		if len(s.taken) != 1-run {
			t.Errorf("run %d sent %q", run, s.taken)
		}
	}
}

// What a refusal is about decides: one of the key, the plan or the project ends the run.
func TestFiles_OtherRefusalsEndTheRun(t *testing.T) {
	for _, refused := range []client.APIError{
		{Status: 401, Code: "unauthenticated", Message: "no key"},
		{Status: 402, Code: "out-of-credits", Message: "items[0] costs"},
		{Status: 403, Code: "forbidden"},
		{Status: 400, Code: "invalid-request", Message: "the body is no JSON"},
		{Status: 413, Code: "content-too-large", Message: "the body has 20 MiB"},
		{Status: 409, Code: "idempotency-conflict"},
		{Status: 400, Code: "invalid-request", Message: "items[9] is wrong"},
		{Status: 409, Code: "data-point-deleted", Data: []byte("[")},
	} {
		calls := 0
		s := &server{refuse: func([]string) error { calls++; return &refused }}
		state := stateAt(t, filepath.Join(t.TempDir(), "p"))
		_, err := Files{To: s, Spool: spoolOf(t, &estimator{}, "1 2"), State: state}.Run(t.Context())
		if err == nil || calls != 1 {
			t.Errorf("%+v: %d calls, %v", refused, calls, err)
		}
	}
}
