package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/runtest"
)

// get reads a path of a process that needs no key.
func (s *served) get(path string) (status int, body string) {
	s.d.t.Helper()
	res, err := http.Get("http://" + s.addr + path)
	if err != nil {
		s.d.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		s.d.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A process with role write takes what the others recall. Its answers wait for their projections, and each
// process refuses the calls of the other's role in words that name it. The pages of one without role write change what
// they change.
func TestRoles_WriteApart(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	writer, rest := d.processes[0], d.processes[1]
	writer.args = []string{"--role", "write"}
	console := rest.consoleAt("read,projector,pipeline,console")
	rest.begin() // it waits for the first start of the other
	writer.start()
	rest.ready()
	for _, s := range d.processes {
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, body := s.get(path); status != http.StatusOK {
				t.Errorf("%s of %s: %d %s", path, s.dir, status, body)
			}
		}
	}

	ana := client.DataPoint{ID: "a", Content: "The code word of spring is marigold.", Identity: "ana"}
	if _, err := writer.client().Ingest(t.Context(), ana); err != nil {
		t.Fatal(err)
	}
	runtest.Await(d.t, "the others recall it", func() bool {
		page, code := rest.recall("marigold")
		return code == "" && len(page.Results) > 0
	})
	if _, code := writer.recall("marigold"); code != fault.CodeServiceUnavailable {
		t.Errorf("recall of a process without role read: code %q", code)
	}
	_, err := rest.client().Ingest(t.Context(), client.DataPoint{ID: "b", Content: "b"})
	refused, ok := errors.AsType[*client.APIError](err)
	if !ok || refused.Status != http.StatusServiceUnavailable || !strings.Contains(refused.Error(), "role write") {
		t.Errorf("a send to a process without role write: %v", err)
	}

	// The answer to a deletion waits until the projections of the other process have applied it.
	if _, err := writer.client().DeleteDataPoints(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if page, code := rest.recall("marigold"); code != "" || len(page.Results) > 0 {
		t.Errorf("recalled after its deletion was acknowledged: %+v, %q", page, code)
	}
	d.operatesElsewhere(writer, rest)
	d.wantConsole(rest, writer, console)
}

// operatesElsewhere checks that an operator's command names the process that it needs.
func (d *deployment) operatesElsewhere(writer, rest *served) {
	t := d.t
	t.Helper()
	var out, failed bytes.Buffer
	none := func(string) string { return "" }
	code := run(t.Context(), []string{"rebuild", "access", "--data-dir", writer.dir}, none, strings.NewReader(""), &out, &failed)
	if code != exitFailed || !strings.Contains(failed.String(), "has only the roles write") {
		t.Errorf("exit code %d: %s", code, failed.String())
	}
	rest.operate("rebuild", "access", "--json")
	writer.operate("project", "caps", "default", "--ingestion-cap", "1000")
	var is struct {
		Status string `json:"status"`
	}
	if _, body := rest.get("/readyz"); json.Unmarshal([]byte(body), &is) != nil || is.Status != "ready" {
		t.Errorf("after the rebuild: %s", body)
	}
}

// now returns the time of the database, with which leases are measured.
func (d *deployment) now() (now time.Time) {
	d.t.Helper()
	if err := d.db.QueryRow(d.t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
		d.t.Fatal(err)
	}
	return now
}

// led reports whether the lease of every projection was taken or renewed since a time, with some slack.
func (d *deployment) led(since time.Time) bool {
	d.t.Helper()
	const lease = 4 * time.Second
	for _, name := range []string{"access", "datapoints", "directory", "memories", "usage"} {
		var until time.Time
		if err := d.db.QueryRow(d.t.Context(), `select until from `+name+`.checkpoint`).Scan(&until); err != nil {
			d.t.Fatal(err)
		}
		if !until.After(since.Add(lease + 100*time.Millisecond)) {
			return false
		}
	}
	return true
}

// signal sends a signal to the process.
func (s *served) signal(sig os.Signal) {
	s.d.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.d.t.Fatal(err)
	}
}

// A process that is frozen under load, wherever in a page that is, loses its projections to the other one. When
// it continues it notices that, and writes nothing: every send that was acknowledged is completed once.
func TestRoles_FrozenHolder(t *testing.T) {
	t.Parallel()
	d := newDeployment(t, time.Now(), 2)
	first, second := d.processes[0], d.processes[1]
	first.start()
	second.start()
	c := second.client()
	var accepted []string
	send := func() {
		t.Helper()
		id := fmt.Sprintf("p%d", len(accepted))
		receipt, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "Ana likes tea " + id + "."})
		if refused, ok := errors.AsType[*client.APIError](err); ok && refused.Status == http.StatusServiceUnavailable {
			return // as while nobody has the lease
		}
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, receipt.IngestionID)
	}
	for range 3 {
		for range 20 {
			send()
		}
		first.signal(syscall.SIGSTOP)
		frozen := d.now()
		runtest.Await(d.t, "the other process has every projection", func() bool { send(); return d.led(frozen) })
		t.Logf("every projection is led again %s after the process froze", d.now().Sub(frozen).Round(time.Millisecond))
		first.signal(syscall.SIGCONT)
		for range 20 {
			send()
		}
		last := accepted[len(accepted)-1]
		runtest.Await(d.t, "the process is back", func() bool {
			status, err := first.client().GetIngestion(t.Context(), last)
			return err == nil && status.Status == "completed"
		})
		first, second = second, first
		c = second.client()
	}
	for _, id := range accepted {
		runtest.Await(d.t, "send "+id+" is completed", func() bool {
			status, err := second.client().GetIngestion(t.Context(), id)
			return err == nil && status.Status == "completed"
		})
	}
	var points int
	if err := d.db.QueryRow(t.Context(), `select count(*) from datapoints.data_points`).Scan(&points); err != nil {
		t.Fatal(err)
	}
	if points < len(accepted) {
		t.Errorf("%d sends were accepted, and %d data points are there", len(accepted), points)
	}
	for _, name := range []string{"datapoints", "memories", "usage"} {
		second.operate("rebuild", name) // it fails if the rows are not as many
	}
}
