package erasure

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/cmd/annals/internal/terminal"
	"github.com/annals-project/annals/commands/erasure"
)

func TestOfPerson_WhoGoesOnWriting(t *testing.T) {
	f := &operatortest.People{Points: 1, Writes: 1}
	f.Erased = erasure.Report{Deletions: 2, Store: "scavenged"}
	dir := t.TempDir()
	operatortest.Serve(t, dir, f.Routes()...)
	var deleted bytes.Buffer
	_, err := OfPerson{
		Server: operatorapi.Dial(dir), Person: operatorapi.PersonRequest{Project: "default", Identity: "ana"},
		Yes: true, Terminal: terminal.Streams{In: strings.NewReader(""), Out: io.Discard}, Deleted: &deleted,
	}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ana wrote again") || f.Calls != personRounds {
		t.Errorf("%v after %d rounds", err, f.Calls)
	}
	if n := strings.Count(deleted.String(), "deleted 1 data point, receipt "); n != personRounds {
		t.Errorf("%d deletions were shown, want %d: %s", n, personRounds, &deleted)
	}
}
