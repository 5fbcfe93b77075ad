package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// ingestAll is a program that sends texts and takes no care of failures.
func ingestAll(ctx context.Context, url, key string, texts int, sent *atomic.Int64) error {
	annals, err := client.New(url, key)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for n := range texts {
		group.Go(func() error {
			receipt, err := annals.Ingest(ctx, client.DataPoint{Content: fmt.Sprintf("Ana's song number %d.", n)})
			if err == nil && receipt.Unchanged != nil {
				err = fmt.Errorf("text %d was there before it was sent", n)
			}
			sent.Add(1)
			return err
		})
	}
	return group.Wait()
}

// A program sends texts while the service is killed twice: all of them are there, once. ANNALS_CLIENT_TEXTS is their
// number.
func TestClient_ServiceKilledTwice(t *testing.T) {
	t.Parallel()
	texts := int(setting(t, "ANNALS_CLIENT_TEXTS", 0))
	if texts == 0 {
		t.Skip("ANNALS_CLIENT_TEXTS is not set")
	}
	s := newService(t, sharedPostgres(t))
	s.start()
	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- ingestAll(t.Context(), "http://"+s.addr, s.credentials()["ANNALS_PROJECT_KEY"], texts, &sent)
	}()
	for kill := range int64(2) {
		runtest.Await(t, "a third of the texts is sent", func() bool { return sent.Load() > (kill+1)*int64(texts)/3 })
		s.kill()
		s.start()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	var stored, want []string
	for line := range strings.Lines(s.annals("export", "--project", "default")) {
		var p client.DataPoint
		runtest.Must(t, json.Unmarshal([]byte(line), &p))
		stored = append(stored, p.Content)
	}
	for n := range texts {
		want = append(want, fmt.Sprintf("Ana's song number %d.", n))
	}
	slices.Sort(stored)
	slices.Sort(want)
	if !slices.Equal(stored, want) {
		t.Errorf("%d texts are stored, want each of %d once", len(stored), texts)
	}
	list, err := s.management().ListProjects(t.Context())
	runtest.Must(t, err)
	if got := list.Projects[0].MonthIngestions; got != int64(texts) {
		t.Errorf("%d revisions were accepted, want %d", got, texts)
	}
}
