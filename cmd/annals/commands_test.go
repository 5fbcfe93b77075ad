package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/cmd/annals/internal/statusview"
	"github.com/annals-project/annals/cmd/annals/internal/transfer"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/fakeapitest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/readapi"
)

// points writes n lines.
func points(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, "{\"id\":\"p%d\",\"content\":\"text %d of tea\"}\n", i, i)
	}
	return b.String()
}

func TestImport_SecondRunSendsNothing(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "in.jsonl", points(1200))
	got := annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file, "--wait")
	if got.code != exitOK || !strings.HasPrefix(got.stdout, "1,200 data points sent in 3 batches") ||
		!strings.Contains(got.stdout, "everything can be recalled") {
		t.Fatalf("got %+v", got)
	}
	if n := len(f.Texts["svc_sk_secret"]); n != 1200 {
		t.Errorf("the server took %d", n)
	}
	got = annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file)
	if got.code != exitOK || !strings.HasPrefix(got.stdout, "0 data points sent in 0 batches") {
		t.Fatalf("second run: %+v", got)
	}
	if n := len(f.Texts["svc_sk_secret"]); n != 1200 {
		t.Errorf("the server took %d after the second run", n)
	}
}

// Without --wait the summary shows how much is still being derived, and how to ask.
func TestImport_StillDeriving(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	f.Status = client.IngestionStatus{Readiness: client.Readiness{Raw: 2, Comprehension: 1}}
	file := fakeapitest.Write(t, "in.jsonl", points(3))
	got := annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file)
	if got.code != exitOK ||
		!strings.HasSuffix(got.stdout, "\n3 sends of the project are still being derived: annals status send-1\n") {
		t.Errorf("got %+v", got)
	}
	f.Status = client.IngestionStatus{Settled: true}
	got = annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file, "--json")
	if got.code != exitOK || strings.Contains(got.stdout, "deriving") {
		t.Errorf("when all is derived: %+v", got)
	}
}

func TestImport_ContinuesAfterARefusal(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "in.jsonl", points(1200))
	f.Refuse = func(items []client.DataPoint) (int, string) {
		if items[0].ID == "p500" {
			return 402, `{"code":"out-of-credits","debugMessage":"the plan has no credits left"}`
		}
		return 0, ""
	}
	got := annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file, "--parallel=1")
	want := "annals: import stopped after 500 data points: lines 501 to 1000 were refused: the server answered 402 " +
		"out-of-credits: the plan has no credits left (request request-1); run the same command again to go on\n"
	if got.code != exitFailed || got.stderr != want {
		t.Fatalf("got %+v, want %s", got, want)
	}
	f.Refuse = nil
	got = annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file, "--json")
	var sum transfer.PointsSummary
	if err := json.Unmarshal([]byte(got.stdout), &sum); err != nil || sum.Points != 1200 || sum.Sent != 700 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if n := len(f.Texts["svc_sk_secret"]); n != 1200 {
		t.Errorf("the server took %d", n)
	}
}

// What the service refuses for itself is left out by name. Once its audience exists, the same command sends it.
func TestImport_LeavesOutAnUnknownAudience(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "in.jsonl", `{"id":"a","content":"one"}`+"\n"+
		`{"id":"b","content":"two","audience":"crew"}`+"\n")
	f.Refuse = func(items []client.DataPoint) (int, string) {
		if at := slices.IndexFunc(items, func(p client.DataPoint) bool { return p.Audience != "" }); at >= 0 {
			return 400, fmt.Sprintf(`{"code":"audience-unknown","debugMessage":"no such audience","data":{"item":%d}}`, at)
		}
		return 0, ""
	}
	got := annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file)
	if got.code != exitPartly || !strings.Contains(got.stdout, `left out: b of line 2: the project has no audience "crew"`) ||
		!strings.Contains(got.stderr, "1 data point was refused; the rest was sent") || len(f.Texts["svc_sk_secret"]) != 1 {
		t.Fatalf("got %+v, took %v", got, f.Texts)
	}
	f.Refuse = nil
	got = annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file)
	if taken := f.Texts["svc_sk_secret"]; got.code != exitOK || taken[len(taken)-1].ID != "b" {
		t.Fatalf("got %+v, took %v", got, f.Texts)
	}
}

func TestImport_StandardInput(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	got := annals(t.Context(), nil, points(3), "import", "--data-dir", dir, "--points=-")
	if got.code != exitOK || len(f.Texts["svc_sk_secret"]) != 3 {
		t.Fatalf("got %+v, took %v", got, f.Texts)
	}
}

func TestImport_BadLine(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "in.jsonl", points(2)+"{}\n")
	got := annals(t.Context(), nil, "", "import", "--data-dir", dir, "--points", file)
	if got.code != exitFailed || got.stderr != "annals: "+file+": line 3: has no content\n" || len(f.Texts) != 0 {
		t.Fatalf("got %+v, took %v", got, f.Texts)
	}
}

func TestImport_ProgressOfAnotherServer(t *testing.T) {
	_, one := fakeapitest.Start(t)
	_, two := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "in.jsonl", points(2))
	annals(t.Context(), nil, "", "import", "--data-dir", one, "--points", file).wants(t, exitOK)
	got := annals(t.Context(), nil, "", "import", "--data-dir", two, "--points", file)
	if got.code != exitOK || !strings.Contains(got.stderr, "--state FILE keeps the progress of both") ||
		!strings.Contains(got.stdout, "2 data points sent") {
		t.Fatalf("got %+v", got)
	}
}

func TestImport_WaitEndsWithStoppedSend(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	f.Status = client.IngestionStatus{Status: "completed", Blocked: true, Readiness: client.Readiness{Failed: 2}}
	annals(t.Context(), nil, points(1), "import", "--data-dir", dir, "--points=-", "--wait").
		wants(t, exitFailed, "2 sends of the project stopped")
}

func TestRecall_Output(t *testing.T) {
	_, dir := fakeapitest.Start(t)
	annals(t.Context(), nil, points(2), "import", "--data-dir", dir, "--points=-").wants(t, exitOK)
	got := annals(t.Context(), nil, "", "recall", "tea", "--identity=ana", "--data-dir", dir)
	want := "1. source, 2025-05-12 09:00\n   text 0 of tea\n   from p0\n"
	if got.code != exitOK || !strings.HasPrefix(got.stdout, want) {
		t.Errorf("got %+v", got)
	}
	var page client.RecallResponse
	got = annals(t.Context(), nil, "", "recall", "tea", "--identity=ana", "--data-dir", dir, "--json")
	if err := json.Unmarshal([]byte(got.stdout), &page); err != nil || len(page.Results) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	annals(t.Context(), nil, "", "recall", "coffee", "--identity=ana", "--data-dir", dir).
		prints(t, "nothing is remembered that matches\n")
}

// A service with ANNALS_OPS_ADDR has no /readyz at the address of its API.
func TestStatus_HealthElsewhere(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	annals(t.Context(), nil, "", "status", "--data-dir", t.TempDir(), "--url", api.URL).
		wants(t, exitFailed, "ANNALS_OPS_ADDR")
}

func TestStatus_Output(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	if got := annals(t.Context(), nil, "", "status", "--data-dir", dir); got.code != exitOK ||
		!strings.HasSuffix(got.stdout, "is ready\n") {
		t.Errorf("server: %+v", got)
	}
	for body, says := range map[string]string{
		`{"code":"service-unavailable","data":{"notReady":[{"part":"postgres","reason":"no answer"},{"part":"service","reason":"starting"}]}}`:                                       "is not ready: postgres: no answer; service: starting\n",
		`{"code":"service-unavailable","data":{"notReady":[{"part":"postgres","reason":"no answer","since":"2026-11-21T12:00:00.5Z"},{"part":"projections","reason":"they wait"}]}}`: "is not ready: postgres: no answer, since 2026-11-21T12:00:00Z; projections: they wait\n",
		`bad gateway`: "is not ready: the server answered 503 (request request-1)\n",
	} {
		f.NotReady = body
		if got := annals(t.Context(), nil, "", "status", "--data-dir", dir); got.code != exitFailed ||
			!strings.HasSuffix(got.stderr, says) {
			t.Errorf("server that is not ready: %+v", got)
		}
	}
	f.NotReady = `{"code":"service-unavailable","data":{"notReady":[{"part":"postgres","reason":"no answer"}],"catchingUp":"the projection access has read 5 %","writesRefused":["the disk is nearly full"],"semanticSearchOff":"the embedding model small is missing",` +
		`"serversDown":["the model cannot be used"],"sendsFailed":"12 sends failed in the last hour","lockAwaited":"a table is locked","erasureDenied":"a right is missing","bulkWritesLost":2,` +
		`"setAside":[{"position":7,"type":"memory.derived.v1","projections":["memories","recallindex"]},{"position":9,"type":"x.v1"}]}}`
	got := annals(t.Context(), nil, "", "status", "--data-dir", dir)
	if want := "the projection access has read 5 %\nwrites are refused: the disk is nearly full\n" +
		"the embedding model small is missing\n" +
		"the model cannot be used\n" +
		"12 sends failed in the last hour\n" +
		"a table is locked\n" +
		"a right is missing\n" +
		"2 bulk writes of identities given up, since the rows could not be read\n" +
		"set aside: position 7, memory.derived.v1, passed over by memories, recallindex\n" +
		"set aside: position 9, x.v1, passed over by all projections\n"; got.stdout != want || !strings.HasSuffix(got.stderr, "is not ready: postgres: no answer\n") {
		t.Errorf("server that refuses writes: %+v", got)
	}
	var is statusview.Condition
	got = annals(t.Context(), nil, "", "status", "--json", "--data-dir", dir)
	if err := json.Unmarshal([]byte(got.stdout), &is); err != nil || is.SemanticSearchOff != "the embedding model small is missing" {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	f.Status = client.IngestionStatus{
		Status: "failed", Blocked: true, Failure: &client.Failure{Code: "content-rejected", Message: "nothing to index"},
	}
	if got := annals(t.Context(), nil, "", "status", "i", "--data-dir", dir); got.code != exitFailed ||
		!strings.Contains(got.stdout, "send: failed") || !strings.Contains(got.stderr, "content-rejected: nothing to index") {
		t.Errorf("send that stopped: %+v", got)
	}
}

// Who may call the socket of the data folder sees how the service is, also what only operators read.
func TestStatus_Service(t *testing.T) {
	dir := t.TempDir()
	is := operatorapi.Status{
		PID: 7, DataDir: "/data", API: "http://127.0.0.1:1", Console: "http://127.0.0.1:2", MCP: "http://127.0.0.1:2/mcp",
		Health: "http://127.0.0.1:3", FailedSends: 2, Details: condition.Details{
			Version: "1.2.3", Roles: "all", Bytes: map[string]int64{"log": 2000, "index": 5000}, DataPoints: new(int64(1234)),
			DiskFree: new(uint64(5e9)), DiskRequired: new(uint64(1e9)),
			LastBackup: new(time.Now().Add(-50 * time.Hour)),
		},
		Projections: []condition.Projection{{Name: "access"}, {Name: "memories", Lag: 3}, {Name: "trace", Lag: 9, Problem: "stopped"}},
	}
	operatortest.Serve(t, dir, operatorapi.StatusRoute(func(context.Context) operatorapi.Status { return is }))
	got := annals(t.Context(), nil, "", "status", "--data-dir", dir)
	if got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	for _, line := range []string{
		"http://127.0.0.1:1 is ready", "version  1.2.3, pid 7, roles all",
		"data     /data, 1,234 data points (index 5.0 kB, log 2.0 kB)",
		"API      http://127.0.0.1:1", "console  http://127.0.0.1:2", "agents   http://127.0.0.1:2/mcp",
		"health   http://127.0.0.1:3/readyz and /metrics", "disk     5.0 GB free; writes are refused below 1.0 GB",
		"(2 days ago)", "failed   2 sends in the last hour: annals failed lists them",
		"lag      trace 9 positions (stopped), memories 3 positions",
	} {
		got.wants(t, exitOK, line+"\n")
	}
	is.NotReady = []client.NotReady{{Part: "postgres", Reason: "it does not answer", Cause: "connection refused"}}
	if got := annals(t.Context(), nil, "", "status", "--data-dir", dir); got.code != exitFailed ||
		!strings.Contains(got.stdout, "failed   2 sends") ||
		!strings.HasSuffix(got.stderr, "is not ready: postgres: it does not answer: connection refused\n") {
		t.Errorf("got %+v", got)
	}
	is.DiskFree, is.LastBackup, is.FailedSends, is.Projections = nil, nil, 0, nil
	is.NotReady = nil
	annals(t.Context(), nil, "", "status", "--data-dir", dir).
		wants(t, exitOK, "disk     not checked", "backup   none is recorded", "failed   no send", "lag      none")
	annals(t.Context(), nil, "", "status", "--json", "--data-dir", dir).wants(t, exitOK, `"mcp": "http://127.0.0.1:2/mcp"`)
}

// A folder that is no data folder names no service, least of all what listens at the default address.
func TestStatus_OtherFolder(t *testing.T) {
	for _, command := range [][]string{{"status"}, {"recall", "q", "--identity=a", "--key=k"}, {"mcp", "--key=k"}} {
		for _, dir := range []string{filepath.Join(t.TempDir(), "nope"), t.TempDir()} {
			annals(t.Context(), nil, "", append(command, "--data-dir", dir)...).
				wants(t, exitFailed, "no credentials.env in "+dir)
		}
	}
}

func TestFailed_ListAndRetry(t *testing.T) {
	dir := t.TempDir()
	s := &operatortest.Sends{Stopped: []datapoints.StoppedSend{
		{IngestionID: uuid.UUID{1}, Project: "default", Code: "index-unavailable", Message: "disk full", Items: 3, Retryable: true},
		{IngestionID: uuid.UUID{2}, Project: "default", Code: "content-rejected", Message: "nothing to index", Items: 1},
	}}
	operatortest.Serve(t, dir, s.Routes()...)
	got := annals(t.Context(), nil, "", "failed", "--data-dir", dir)
	if got.code != exitOK || !strings.Contains(got.stdout, "index-unavailable: disk full") || len(s.Retried) != 0 {
		t.Errorf("got %+v, retried %v", got, s.Retried)
	}
	got = annals(t.Context(), nil, "", "failed", "--retry", "--data-dir", dir)
	if got.code != exitOK || !strings.HasSuffix(got.stdout, "1 of 2 put back\n") || len(s.Retried) != 1 {
		t.Errorf("got %+v, retried %v", got, s.Retried)
	}
	got = annals(t.Context(), nil, "", "failed", "--json", "--data-dir", dir)
	var list struct{ Failed []datapoints.StoppedSend }
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Failed) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestClientCommands_ServerDoesNotAnswer(t *testing.T) {
	dir := fakeapitest.DataFolder(t, "http://"+runtest.FreeAddress(t))
	for name, args := range map[string][]string{
		"recall":           {"recall", "q", "--identity=a"},
		"status":           {"status"},
		"status of a send": {"status", "i"},
		"failed":           {"failed"},
		"import":           {"import", "--points=-"},
	} {
		t.Run(name, func(t *testing.T) {
			got := annals(t.Context(), nil, points(1), append(args, "--data-dir", dir)...)
			got.fails(t, exitFailed)
			if !strings.Contains(got.stderr, "no answer from http://127.0.0.1:") &&
				!strings.Contains(got.stderr, "no server is running") {
				t.Errorf("unclear: %s", got.stderr)
			}
			if strings.Contains(got.stderr, "secret") {
				t.Errorf("the key is in %s", got.stderr)
			}
		})
	}
}

func TestCredentials_Missing(t *testing.T) {
	annals(t.Context(), nil, "", "recall", "q", "--identity=a", "--data-dir", t.TempDir()).
		wants(t, exitFailed, "ANNALS_PROJECT_KEY")
}

func TestCredentials_VariablesBeforeDataFolder(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	env := map[string]string{"ANNALS_DATA_DIR": dir, "ANNALS_PROJECT_KEY": "svc_sk_other"}
	annals(t.Context(), env, points(1), "import", "--points=-").wants(t, exitOK)
	if len(f.Texts["svc_sk_other"]) != 1 {
		t.Errorf("took %v", f.Texts)
	}
}

func TestCredentials_Unreadable(t *testing.T) {
	dir := t.TempDir()
	runtest.Must(t, os.Mkdir(dir+"/"+datafolder.CredentialsFile, 0o700))
	annals(t.Context(), nil, "", "status", "i", "--data-dir", dir).wants(t, exitFailed, "read credentials")
}

// roomOf is the room of every project.
type roomOf account.Room

func (r roomOf) Room(context.Context, auth.Principal, time.Time) (account.Room, error) {
	return account.Room(r), nil
}

// startEstimates serves the route of estimates, and returns the flags that name it.
func startEstimates(t *testing.T, room account.Room) []string {
	t.Helper()
	e := httpx.New(httpx.Config{Log: slog.New(slog.DiscardHandler), Keys: apitest.Keys{}, URLs: apitest.URLs})
	readapi.Register(e, readapi.Deps{Rooms: roomOf(room)})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return []string{"estimate", "--data-dir", t.TempDir(), "--url", server.URL, "--key", apitest.ProjectKey}
}

func estimateFolder(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "old")
	runtest.Must(t, os.MkdirAll(filepath.Join(root, "mail"), 0o700))
	for name, text := range map[string]string{
		"mail/1.eml":    "From: ana@example.com\nSubject: Tea\nDate: Mon, 12 May 2025 10:15:00 +0200\n\nTea is ready.\n",
		"mail/2.eml":    "no message",
		"prices.csv":    "id,date,price\n1,2025-05-13,3\n2,2025-05-14," + strings.Repeat("9", 400) + "\n",
		"picture.png":   "\x89PNG\x00\x00",
		".secret":       "x",
		"notes/none.md": "",
	} {
		path := filepath.Join(root, name)
		runtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestEstimate_Table(t *testing.T) {
	flags := startEstimates(t, account.Room{Metered: true, LeftTenths: new(int64(35)), CreditTenths: new(int64(35))})
	got := annals(t.Context(), nil, "", append(flags, estimateFolder(t))...)
	want := `   kind  files  data points  no time  bytes  credits
  email      1            1        0   13 B        1
  table      1            2        0  461 B        3
    all      2            3        0  474 B        4
skipped: old/mail/2.eml cannot be read as email: it does not begin with the header of a message
skipped: old/notes/none.md is empty or white space
skipped: old/.secret is hidden
skipped: old/picture.png is not text: it is a picture
3 data points in 1 batch do not fit: the first 2 would pass of 3.5 credits that are left
`
	got.stdout = strings.ReplaceAll(got.stdout, "  \n", "\n")
	if diff := cmp.Diff(want, got.stdout); got.code != exitOK || diff != "" {
		t.Errorf("code %d, %s\n%s", got.code, got.stderr, diff)
	}
}

func TestEstimate_JSON(t *testing.T) {
	flags := startEstimates(t, account.Room{})
	got := annals(t.Context(), nil, "", append(flags, "--json", "--kind", "notes", "--time-zone", "Europe/Rome", estimateFolder(t))...)
	var e client.Estimate
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if e.DataPoints != 3 || e.TimeZone != "Europe/Rome" || !e.Fits || e.FitsFirst != 3 || e.Credits != nil || len(e.Files) != 6 ||
		len(e.Points) != 3 || len(e.Batches) != 1 || *e.Files[0].DetectedBy != "given" {
		t.Errorf("%s", got.stdout)
	}
	if again := annals(t.Context(), nil, "", append(flags, "--json", "--kind", "pdf", ".")...); again.code != exitUsage ||
		!strings.Contains(again.stderr, `--kind is "pdf"`) {
		t.Errorf("an unknown kind: %+v", again)
	}
	if again := annals(t.Context(), nil, "", append(flags, "--time-zone", "Rome", estimateFolder(t))...); again.code != exitFailed ||
		!strings.Contains(again.stderr, "timeZone") {
		t.Errorf("an unknown zone: %+v", again)
	}
	if again := annals(t.Context(), nil, "", append(flags, "no-such-file")...); again.code != exitFailed {
		t.Errorf("a path that is not there: %+v", again)
	}
}

func TestRecallExplain_WrongUse(t *testing.T) {
	for _, args := range [][]string{{"--missing=a"}, {"--project=default"}, {"--org=Acme"}} {
		annals(t.Context(), nil, "", append([]string{"recall", "tea", "--identity=ana"}, args...)...).
			wants(t, exitUsage, "--missing, --project and --org need --explain")
	}
}

func TestRecallExplain_WithoutServer(t *testing.T) {
	_, dir := fakeapitest.Start(t) // it has an address and a key, and no socket
	for _, args := range [][]string{{}, {"--project=default"}, {"--json", "--missing=a"}} {
		args = append([]string{"recall", "tea", "--identity=ana", "--explain", "--data-dir", dir}, args...)
		annals(t.Context(), nil, "", args...).fails(t, exitFailed, "no server is running on data folder "+dir)
	}
	annals(t.Context(), nil, "", "recall", "tea", "--identity=ana", "--explain", "--data-dir", t.TempDir()).
		wants(t, exitFailed, "no project key")
}

// The commands explain recalls of a running service.
func TestRecallExplain_Served(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 1)
	s := d.processes[0]
	s.start()
	command := func(args ...string) outcome {
		return annals(t.Context(), map[string]string{"ANNALS_API_URL": "http://" + s.addr}, "", append(args, "--data-dir", s.dir)...)
	}
	s.ingest("call 1", "Ana moved the launch to 3 June 2025.")
	s.ingest("rain", "It rained.")
	runtest.Await(t, "it is recalled", func() bool {
		page, code := s.recall("launch")
		return code == "" && len(page.Results) > 1 // the text and its memory
	})
	got := command("recall", "When is the launch?", "--identity=ben", "--explain", "--missing=rain", "--missing", "a, b")
	for _, want := range []string{
		"words: launch ", "asks for: a time\n", "call 1", "passed, project", "words, memory", " + time evidence ",
		"not among the candidates", "it has none of the question's words", "a, b    not stored",
	} {
		got.wants(t, exitOK, want)
	}
	got = command("recall", "When is the launch?", "--identity=ben", "--explain", "--project=default", "--missing=rain", "--json")
	var e explained.Explanation
	if err := json.Unmarshal([]byte(got.stdout), &e); err != nil || len(e.Results) == 0 || e.Results[0].Score <= 0 ||
		len(e.Sources) != 1 || e.Sources[0].Verdict != explained.NotCandidate {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
	command("recall", "launch", "--identity=ben", "--explain", "--limit=999").
		wants(t, exitFailed, "invalid-request: limit")
	command("recall", "launch", "--identity=ben", "--explain", "--key=svc_sk_other").
		wants(t, exitFailed, "no project of this server has the key")

	values, err := datafolder.ReadCredentials(s.dir)
	if err != nil || strings.Contains(got.stdout+got.stderr, values[datafolder.ProjectKeyName]) {
		t.Errorf("a key is in the output, %v", err)
	}
}
