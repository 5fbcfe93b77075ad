package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/limit"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server keeps batches by key as the service does: the same key has the same receipt and takes effect once.
type server struct {
	mu    sync.Mutex
	keys  map[string]*client.BatchReceipt
	taken []string
	// flying and most count requests that are answered at the same time.
	flying, most int
	delay        func(content string) time.Duration
	refuse       func(contents []string) error
}

func (s *server) IngestBatch(ctx context.Context, b client.Batch) (*client.BatchReceipt, error) {
	var contents []string
	for _, item := range b.RawItems {
		var p client.DataPoint
		if err := json.Unmarshal(item, &p); err != nil {
			return nil, err
		}
		contents = append(contents, p.Content)
	}
	s.mu.Lock()
	s.flying++
	s.most = max(s.most, s.flying)
	s.mu.Unlock()
	if s.delay != nil {
		select {
		case <-ctx.Done():
		case <-time.After(s.delay(contents[0])):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.refuse != nil {
		if err := s.refuse(contents); err != nil {
			return nil, err
		}
	}
	if known, ok := s.keys[b.IdempotencyKey]; ok {
		return known, nil
	}
	if s.keys == nil {
		s.keys = map[string]*client.BatchReceipt{}
	}
	s.taken = append(s.taken, contents...)
	receipt := &client.BatchReceipt{
		ProjectID: 1, IngestionID: fmt.Sprintf("send-%d", len(s.keys)), Items: make([]client.ItemReceipt, len(b.RawItems)),
	}
	s.keys[b.IdempotencyKey] = receipt
	return receipt, nil
}

// input writes data points with these contents; "id=content" has an id of its own.
func input(points ...string) string {
	var b strings.Builder
	for _, p := range points {
		id, content, ok := strings.Cut(p, "=")
		if !ok {
			id, content = "", p
		}
		line, err := Line(client.DataPoint{ID: id, Content: content})
		if err != nil {
			panic(err)
		}
		b.Write(line)
	}
	return b.String()
}

func TestImport_EachLineOnce(t *testing.T) {
	var points []string
	for i := range 1201 {
		points = append(points, fmt.Sprintf("content %d", i))
	}
	s := &server{}
	state, err := Import{
		To: s, In: strings.NewReader(input(points...)), State: begin("s"), Parallel: 1,
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(points, s.taken); diff != "" {
		t.Error(diff)
	}
	if state.Points != 1201 || state.Batches != 3 || state.Offset != int64(len(input(points...))) {
		t.Errorf("got %+v", state)
	}
}

func TestImport_OneIDStaysInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first batch that carries an id is the slowest, so a second one in flight would overtake it.
		s := &server{delay: func(content string) time.Duration {
			if content == "x1" {
				return time.Minute
			}
			return time.Second
		}}
		in := input("x=x1", "a", "b", "c", "x=x2", "d", "x=x3")
		im := Import{To: s, In: strings.NewReader(in), State: begin("s"), Parallel: 3, Items: 1}
		if _, err := im.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var xs []string
		for _, c := range s.taken {
			if strings.HasPrefix(c, "x") {
				xs = append(xs, c)
			}
		}
		if diff := cmp.Diff([]string{"x1", "x2", "x3"}, xs); diff != "" {
			t.Error(diff)
		}
		if s.most != 3 || len(s.taken) != 7 {
			t.Errorf("%d in flight at most, want 3; took %v", s.most, s.taken)
		}
	})
}

func TestBatch_RepeatedID(t *testing.T) {
	for name, points := range map[string][]string{
		"given":          {"x=1", "y=2", "x=3"},
		"of the content": {"same", "other", "same"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			state, err := Import{To: s, In: strings.NewReader(input(points...)), State: begin("s")}.Run(t.Context())
			if err != nil || state.Batches != 2 || len(s.taken) != 3 {
				t.Fatalf("%+v, %v, took %v", state, err, s.taken)
			}
		})
	}
}

func TestBatch_EndsBeforeItIsTooLarge(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	s := &server{}
	state, err := Import{
		To: s, In: strings.NewReader(input("1"+big, "2"+big, "3"+big, strings.Repeat("y", 9<<20))), State: begin("s"),
	}.Run(t.Context())
	if err != nil || state.Batches != 3 {
		t.Fatalf("%d batches, %v: want 2 + 1 + 1 items", state.Batches, err)
	}
}

func TestImport_ContinuesAfterAStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []string
		for i := range rapid.IntRange(1, 40).Draw(t, "points") {
			points = append(points, fmt.Sprintf("%d=content %d", rapid.IntRange(0, 9).Draw(t, "id"), i))
		}
		items, parallel := rapid.IntRange(1, 5).Draw(t, "items"), rapid.IntRange(1, 4).Draw(t, "parallel")
		s := &server{}
		state := begin("s")
		for run := 0; ; run++ {
			// Each run but the last one meets refusals, at batches that are drawn.
			failures := rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(t, "failures")
			calls := 0
			s.refuse = func([]string) error {
				calls++
				if run < 3 && failures[calls%len(failures)] {
					return errors.New("gone")
				}
				return nil
			}
			var err error
			state, err = Import{
				To: s, In: strings.NewReader(input(points...)), State: state, Parallel: parallel, Items: items,
			}.Run(context.Background())
			if err == nil {
				break
			}
			if run == 3 {
				t.Fatal(err)
			}
		}
		if len(s.taken) != len(points) || state.Points != len(points) {
			t.Fatalf("took %d of %d points, state has %d", len(s.taken), len(points), state.Points)
		}
		last := map[string]string{}
		for _, p := range points {
			id, content, _ := strings.Cut(p, "=")
			last[id] = content
		}
		got := map[string]string{}
		for _, content := range s.taken {
			for _, p := range points {
				if id, c, _ := strings.Cut(p, "="); c == content {
					got[id] = content
				}
			}
		}
		if diff := cmp.Diff(last, got); diff != "" {
			t.Fatalf("an id does not end with its last line: %s", diff)
		}
	})
}

func TestImport_StoppedKeepsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: func(content string) time.Duration { return time.Duration(len(content)) * time.Second }}
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		state, err := Import{
			To: s, In: strings.NewReader(input("1", "22", "333", "4444")), State: begin("s"), Parallel: 1, Items: 1,
		}.Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || state.Points != 2 {
			t.Fatalf("got %+v, %v", state, err)
		}
	})
}

func TestCheck_InvalidLines(t *testing.T) {
	good := `{"content":"tea"}` + "\n"
	for name, c := range map[string]struct{ in, says string }{
		"no JSON":          {good + "tea\n", "line 2: is no data point: invalid character"},
		"cut short":        {good + `{"content":"t`, "line 2: is no data point: unexpected EOF"},
		"unknown field":    {good + "\n" + `{"content":"t","text":"t"}`, `line 3: is no data point: unknown field "text"`},
		"wrong type":       {`{"content":7}`, "line 1: is no data point: cannot unmarshal number"},
		"two values":       {`{"content":"a"} {"content":"b"}`, "line 1: holds more than one JSON value"},
		"no content":       {`{"id":"a"}`, "line 1: has no content"},
		"only white space": {`{"content":" \n"}`, "line 1: has no content"},
		"empty id":         {`{"content":"a","id":""}`, "line 1: has an empty id"},
		"not UTF-8":        {"{\"content\":\"\xff\"}", "line 1: is not UTF-8"},
		"too much content": {input(strings.Repeat("x", limit.ContentBytes+1)), "line 1: has more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Check(strings.NewReader(c.in))
			if bad, ok := errors.AsType[*LineError](err); !ok || !strings.HasPrefix(bad.Error(), c.says) {
				t.Fatalf("got %v, want %s", err, c.says)
			}
		})
	}
}

func TestImport_BadLineLater(t *testing.T) {
	s := &server{}
	state, err := Import{
		To: s, In: strings.NewReader(input("a", "b") + "nonsense\n" + input("c")), State: begin("s"),
	}.Run(t.Context())
	if bad, ok := errors.AsType[*LineError](err); !ok || bad.Line != 3 {
		t.Fatalf("got %v", err)
	}
	if state.Points != 2 || len(s.taken) != 2 {
		t.Errorf("got %+v, took %v", state, s.taken)
	}
}

func TestCheck_BlankLinesAndByteOrderMark(t *testing.T) {
	got, err := Check(strings.NewReader("\xef\xbb\xbf" + `{"content":"a"}` + "\r\n\r\n" + `{"content":"b"}`))
	if err != nil || got.Points != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestImport_RefusalNamesTheLine(t *testing.T) {
	for name, c := range map[string]struct{ message, says string }{
		"of one item":   {"items[1].audience: no audience is called team", "line 3 was refused"},
		"of all of it":  {"spent", "lines 1 to 3 were refused"},
		"item and word": {"item 0: label is too long", "line 1 was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{refuse: func([]string) error { return &client.APIError{Status: 400, Code: "x", Message: c.message} }}
			_, err := Import{To: s, In: strings.NewReader(input("a") + "\n" + input("b")), State: begin("s")}.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), c.says) {
				t.Fatalf("got %v, want %s", err, c.says)
			}
		})
	}
}

func TestImport_InputChanged(t *testing.T) {
	s := &server{}
	state, err := Import{To: s, In: strings.NewReader(input("a", "b")), State: begin("s")}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{"changed": input("c", "b"), "shorter": input("a")} {
		if _, err := (Import{To: s, In: strings.NewReader(in), State: state}).Run(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	longer, err := Import{To: s, In: strings.NewReader(input("a", "b", "c")), State: state}.Run(t.Context())
	if err != nil || longer.Points != 3 || len(s.taken) != 3 {
		t.Errorf("an input that grew: %+v, %v, took %v", longer, err, s.taken)
	}
}

func TestImport_AnotherProject(t *testing.T) {
	state := begin("s")
	state.ProjectID = 9
	_, err := Import{To: &server{}, In: strings.NewReader(input("a")), State: state}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another project") {
		t.Fatalf("got %v", err)
	}
}

func TestState_OutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl.progress")
	if _, ok, err := LoadState(path); ok || err != nil {
		t.Fatalf("a file that is not there: %v, %v", ok, err)
	}
	want := begin("http://s")
	want.Offset, want.Batches = 7, 1
	for _, s := range []State{begin("http://s"), want} {
		if err := s.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := LoadState(path)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("leftovers: %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadState(path); err == nil {
		t.Error("a foreign file was taken for a progress file")
	}
}

// begin is the state of a new import.
func begin(server string) State { return NewState(Target{Server: server}) }

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

// The memories of an export are counted and not sent, each once, however often the import stops.
func TestImport_SkipsMemories(t *testing.T) {
	const memory = `{"type":"memory","sourceId":"a","content":"is derived again"}`
	lines := strings.Join([]string{
		memory, `{"content":"a"}`, memory, memory, `{"content":"b"}`, `{"content":"c"}`, memory, `{"content":"d"}`, memory, memory,
	}, "\n") + "\n"
	for stop := range 5 {
		s, state := &server{}, begin("here")
		for run := 0; ; run++ {
			sent := 0
			s.refuse = func([]string) error {
				if sent++; run == 0 && sent > stop {
					return errors.New("away")
				}
				return nil
			}
			next, err := Import{To: s, In: strings.NewReader(lines), State: state, Parallel: 1, Items: 1}.Run(t.Context())
			if state = next; err == nil {
				break
			}
			if run > 0 {
				t.Fatal(err)
			}
		}
		if got := strings.Join(s.taken, ""); got != "abcd" || state.Skipped != 6 || state.Points != 4 {
			t.Errorf("stopped after %d: sent %s, state %+v", stop, got, state)
		}
	}
}

func TestCheck_OtherTypesAreRefused(t *testing.T) {
	for _, line := range []string{`{"type":"person","content":"a"}`, `{"type":7}`, `["memory"]`} {
		if _, err := Check(strings.NewReader(line)); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}
