package operatorapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/internal/work"
)

func TestErase_ReachesTheService(t *testing.T) {
	until := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	e := &operatortest.Eraser{
		Pending: work.Open{FanOuts: 1, Deletions: 2, DataPoints: 3, Blobs: 4, Until: &until},
		Erased: erasure.Report{
			Deletions: 5, Streams: 6, Blobs: 7, Tables: 8, Indexes: 9, Store: "scavenged",
			Left: work.Open{Blobs: 1, Until: &until},
		},
	}
	dir := t.TempDir()
	operatortest.Serve(t, dir, e.Routes()...)
	c := operatorapi.Dial(dir)
	pending, err := operatorapi.PendingErasures.Call(t.Context(), c, operatorapi.None{})
	if diff := cmp.Diff(e.Pending, pending); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	erased, err := operatorapi.EraseNow.Call(t.Context(), c, operatorapi.None{})
	if diff := cmp.Diff(e.Erased, erased, cmpopts.IgnoreUnexported(erasure.Report{})); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	e.Refuse = errors.New("no space left on device")
	if _, err := operatorapi.EraseNow.Call(t.Context(), c, operatorapi.None{}); err == nil ||
		!strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
}
