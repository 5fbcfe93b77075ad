package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

// secret is a word that nobody else writes, and that no compression shortens.
func secret() string {
	letters := make([]byte, 28)
	for i := range letters {
		letters[i] = "bcdfghjklmnpqrtvwxz"[rand.IntN(19)] //nolint:gosec // it is to differ, not to be secret
	}
	return string(letters)
}

// What is deleted is in no file of the log and of the index once "annals erase --now" has answered, and before that it is.
func TestEraseNowLeavesNoWordOnTheDisk(t *testing.T) {
	s := newService(t)
	s.start()
	c := s.client(client.Options{})
	gone, stays := secret(), secret()
	for id, word := range map[string]string{"gone": gone, "stays": stays} {
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "The password of " + id + " is " + word + "."}, "")
		if err != nil {
			t.Fatal(err)
		}
		completed(t.Context(), t, c, r.IngestionID)
	}
	// A stem of a word may stand in the index.
	files := func(word string) (in []string) {
		for _, folder := range []string{"log", "recall"} {
			for _, file := range blevetest.Holding(t, filepath.Join(s.dir, folder), word[:20]) {
				in = append(in, folder+"/"+file)
			}
		}
		return in
	}
	both := func(word string) bool {
		text := strings.Join(files(word), " ")
		return strings.Contains(text, "log/") && strings.Contains(text, "recall/")
	}
	if !both(gone) || !both(stays) {
		t.Fatalf("before the deletion: %v, %v", files(gone), files(stays))
	}
	if _, err := c.DeleteDataPoints(t.Context(), []string{"gone"}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, "erase", "--now", "--json", "--data-dir", s.dir).Output()
	if err != nil {
		t.Fatalf("annals erase --now: %v\n%s", err, out)
	}
	var done struct {
		Deletions int
		Store     string
		Left      struct{ Deletions, FanOuts, Blobs int }
	}
	if err := json.Unmarshal(out, &done); err != nil || done.Left.Deletions+done.Left.FanOuts+done.Left.Blobs != 0 {
		t.Fatalf("annals erase --now: %v\n%s", err, out)
	}
	if in := files(gone); len(in) > 0 {
		t.Errorf("erased, and still in %v", in)
	}
	if !both(stays) {
		t.Errorf("what was not deleted is in %v only", files(stays))
	}
	out, err = exec.CommandContext(t.Context(), binary, "erase", "--data-dir", s.dir).Output()
	if err != nil || string(out) != "nothing waits to be erased\n" {
		t.Errorf("annals erase: %v\n%s", err, out)
	}
	page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What is the password? " + stays, Identity: "x"})
	if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != "stays" {
		t.Errorf("recall of what stays: %+v, %v", page.Results, err)
	}
	for _, result := range page.Results {
		if strings.Contains(result.Content, gone) {
			t.Errorf("recall finds what is erased: %+v", result)
		}
	}
}
