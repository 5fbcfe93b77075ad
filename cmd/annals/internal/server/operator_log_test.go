package server

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
)

// What is in the operator log stays until it is recorded. A line that a crash cut is passed over, and the file is
// bounded.
func TestOperatorLog(t *testing.T) {
	t.Parallel()
	log := newOperatorLog(t.TempDir())
	runtest.Must(t, log.take(func(operatorLine) error { return errors.New("there is no line") }))
	want := []operatorLine{
		{At: time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC), Principal: "operator root", Command: "annals export", RequestID: uuid.New()},
		{Principal: "operator root (says: Ruth)", Reason: "ticket 7", Command: "annals events read", Of: readOf{Stream: "registry"}},
	}
	for _, line := range want {
		runtest.Must(t, log.add(line))
	}
	away := errors.New("away")
	if err := log.take(func(operatorLine) error { return away }); !errors.Is(err, away) {
		t.Errorf("while nothing is recorded: %v", err)
	}
	file, err := os.OpenFile(log.path, os.O_APPEND|os.O_WRONLY, 0)
	runtest.Must(t, err)
	_, err = file.WriteString(`{"at":"2026`)
	runtest.Must(t, errors.Join(err, file.Close()))
	var got []operatorLine
	runtest.Must(t, log.take(func(line operatorLine) error {
		got = append(got, line)
		return nil
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(log.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	runtest.Must(t, os.WriteFile(log.path, []byte(strings.Repeat("x", maxOperatorLog)), 0o600))
	if err := log.add(want[0]); err == nil {
		t.Error("a full file takes a line")
	}
}

// A start records what operators read while it could not be recorded.
func TestServer_EarlierReadsOfOperators(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	runtest.Must(t, os.MkdirAll(h.dir, 0o700))
	runtest.Must(t, newOperatorLog(h.dir).add(operatorLine{
		At: time.Now(), Principal: "operator root", Reason: "ticket 7", RequestID: uuid.New(), Command: "annals export",
	}))
	h.start()
	runtest.Await(t, "the read is in the log", func() bool { return h.count("visit.operator-read.v1") == 1 })
	runtest.Await(t, "the file is gone", func() bool {
		_, err := os.Stat(newOperatorLog(h.dir).path)
		return errors.Is(err, os.ErrNotExist)
	})
}
