package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/eventstore/node/clustertest"
	"github.com/annals-project/annals/internal/runtest"
)

// The service over a cluster whose leader changes, and of which a member dies, while callers send:
// all that was accepted is recalled.
func TestCluster_LeaderChangesDuringIngest(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 3)
	s := newService(t, sharedPostgres(t), "ANNALS_EVENTSTORE="+c.ConnectionString("discoveryInterval=20"))
	s.start()

	const callers = 4
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	accepted := make([][]*client.Receipt, callers)
	var sent atomic.Int64
	var running sync.WaitGroup
	for i := range callers {
		running.Go(func() {
			api := s.client()
			for n := 0; ctx.Err() == nil; n++ {
				r, err := api.Ingest(t.Context(), client.DataPoint{
					ID: fmt.Sprintf("point-%d-%d", i, n), Content: fmt.Sprintf("The code word of the call is w%dx%d.", i, n),
				})
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				accepted[i] = append(accepted[i], r)
				sent.Add(1)
			}
		})
	}
	goOn := func(when string) {
		next := sent.Load() + 2*callers
		runtest.Await(t, "sends are accepted "+when, func() bool { return sent.Load() >= next || t.Failed() })
	}
	goOn("at first")
	c.Lead(1)
	goOn("by the second leader")
	c.LoseAnswers(1, 3)
	goOn("although answers were lost")
	c.Kill(1)
	c.Lead(2)
	goOn("by the third leader")
	c.Lead(-1)
	c.Lead(0)
	c.Return(1)
	goOn("by the first leader again")
	stop()
	running.Wait()

	api := s.client()
	for i, receipts := range accepted {
		for n, r := range receipts {
			completed(t.Context(), t, api, r.IngestionID)
			id := fmt.Sprintf("point-%d-%d", i, n)
			got, err := observe(t.Context(), api, id, fmt.Sprintf("w%dx%d", i, n))
			if err != nil || got == nil {
				t.Errorf("%s was accepted and is not recalled: %v", id, err)
			}
		}
	}
	t.Logf("%d sends", sent.Load())
	if strings.Contains(s.log.String(), "sesame") {
		t.Error("the log of the service holds the password of the cluster")
	}
}

// A start with a wrong certificate, password or address of the cluster is one line, without the
// password.
func TestCluster_WrongSettings(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	right := c.ConnectionString("maxDiscoverAttempts=2")
	hosts := right[strings.LastIndex(right, "@")+1:]
	for name, test := range map[string]struct{ connection, want string }{
		"no authority":     {right[:strings.LastIndex(right, "?")], "certificate"},
		"another password": {"esdb+discover://admin:open-sesame@" + hosts, "user and password"},
		"nobody there":     {"esdb+discover://admin:open-sesame@127.0.0.1:1?maxDiscoverAttempts=2", "no leader was found"},
		"unknown setting":  {right + "&tlsCaFil=x", `ANNALS_EVENTSTORE has an unknown setting "tlsCaFil"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			cmd := exec.Command(binary, "serve", "--data-dir", s.dir, "--api-addr", runtest.FreeAddress(t), "--console-addr", "127.0.0.1:0")
			cmd.Env = append(cmd.Environ(), sharedPostgres(t), "ANNALS_LOG_LEVEL=error", "ANNALS_EVENTSTORE="+test.connection)
			out, err := cmd.CombinedOutput()
			text := strings.TrimSpace(string(out))
			if err == nil || !strings.Contains(text, test.want) || strings.Contains(text, "sesame") {
				t.Errorf("%v: %s; want %q", err, text, test.want)
			}
			if lines := strings.Split(text, "\n"); len(lines) != 1 {
				t.Errorf("%d lines:\n%s", len(lines), text)
			}
		})
	}
}
