package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	erasing "github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/erasure"
)

func watchErasure(ctx context.Context, t *testing.T, f *operatortest.People) (personErasureSummary, string, error) {
	t.Helper()
	f.Erased = erasing.Report{Deletions: 2, Store: "scavenged"}
	dir := t.TempDir()
	operatortest.Serve(t, dir, f.Routes()...)
	var deleted bytes.Buffer
	sum, err := personErasure{
		Server: operatorapi.Dial(dir), Person: operatorapi.PersonRequest{Project: "default", Identity: "ana"},
		Yes: true, Terminal: terminal.Streams{In: strings.NewReader(""), Out: io.Discard}, Deleted: &deleted,
	}.Run(ctx)
	return sum, deleted.String(), err
}

func TestPersonErasure_WhoGoesOnWriting(t *testing.T) {
	f := &operatortest.People{Points: 1, Writes: 1}
	_, deleted, err := watchErasure(t.Context(), t, f)
	if err == nil || !strings.Contains(err.Error(), "ana wrote again") || f.Begun != 1 || f.Rounds != erasure.Rounds {
		t.Errorf("%v after %d rounds of %d erasures", err, f.Rounds, f.Begun)
	}
	if n := strings.Count(deleted, "deleted 1 data point, receipt "); n != erasure.Rounds {
		t.Errorf("%d deletions were shown, want %d: %s", n, erasure.Rounds, deleted)
	}
}

func TestPersonErasure_Waits(t *testing.T) {
	sum, _, err := watchErasure(t.Context(), t, &operatortest.People{Points: 3, Waits: 2})
	if err != nil || sum.DataPoints != 3 {
		t.Errorf("%+v, %v", sum, err)
	}
	if err := sum.Err(); err == nil || err.Error() != "2 deletions of the project must wait: run the same command again later" {
		t.Error(err)
	}
}

func TestPersonErasure_Failures(t *testing.T) {
	for name, f := range map[string]*operatortest.People{
		"a step":     {Points: 1, Failure: "the disk is full"},
		"the status": {Points: 1, Eraser: operatortest.Eraser{Refuse: operatorapi.Refuse("the disk is full")}},
	} {
		if _, _, err := watchErasure(t.Context(), t, f); err == nil || !strings.HasPrefix(err.Error(), "the disk is full; the service ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// interrupting ends a context when it is written.
type interrupting struct{ end context.CancelFunc }

func (i interrupting) Write(b []byte) (int, error) {
	i.end()
	return len(b), nil
}

func TestPersonErasure_Interrupted(t *testing.T) {
	f := &operatortest.People{Points: 3}
	dir := t.TempDir()
	operatortest.Serve(t, dir, f.Routes()...)
	ctx, end := context.WithCancel(t.Context())
	_, err := personErasure{
		Server: operatorapi.Dial(dir), Person: operatorapi.PersonRequest{Project: "default", Identity: "ana"},
		Yes: true, Terminal: terminal.Streams{In: strings.NewReader(""), Out: io.Discard}, Deleted: interrupting{end},
	}.Run(ctx)
	if err == nil || err.Error() != "interrupted, but the service goes on; run the same command again to look" {
		t.Error(err)
	}
}
