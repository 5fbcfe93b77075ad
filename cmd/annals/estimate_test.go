package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/readapi"
)

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
	if err := os.MkdirAll(filepath.Join(root, "mail"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"mail/1.eml":    "From: ana@example.com\nSubject: Tea\nDate: Mon, 12 May 2025 10:15:00 +0200\n\nTea is ready.\n",
		"mail/2.eml":    "no message",
		"prices.csv":    "id,date,price\n1,2025-05-13,3\n2,2025-05-14," + strings.Repeat("9", 400) + "\n",
		"picture.png":   "\x89PNG\x00\x00",
		".secret":       "x",
		"notes/none.md": "",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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
