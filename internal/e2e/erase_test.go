package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/bleve/blevetest"
)

// What is deleted is in no file of the log and of the index once "annals erase --now" has answered,
// and before that it is.
func TestErase_NoWordOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	c := s.client()
	gone, stays := runtest.Word(), runtest.Word()
	for id, word := range map[string]string{"gone": gone, "stays": stays} {
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "The password of " + id + " is " + word + "."})
		if err != nil {
			t.Fatal(err)
		}
		completed(t.Context(), t, c, r.IngestionID)
	}
	// A stem of a word may be in the index.
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
	s.eraseNow()
	if in := files(gone); len(in) > 0 {
		t.Errorf("erased, and still in %v", in)
	}
	if !both(stays) {
		t.Errorf("what was not deleted is in %v only", files(stays))
	}
	if out := s.waiting(); out != "nothing waits to be erased\n" {
		t.Errorf("annals erase: %s", out)
	}
	page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What is the password? " + stays, Identity: "x"})
	if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != "stays" {
		t.Errorf("recall of what stays: %+v, %v", page, err)
	}
	for _, result := range page.Results {
		if strings.Contains(result.Content, gone) {
			t.Errorf("recall finds what is erased: %+v", result)
		}
	}
}

// eraseNow runs "annals erase --now", which leaves nothing that was deleted, and damages no stream.
func (s *service) eraseNow() {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), binary, "erase", "--now", "--json", "--data-dir", s.dir).Output()
	if err != nil {
		s.t.Fatalf("annals erase --now: %v\n%s", err, out)
	}
	var done struct {
		Left struct{ Deletions, Identities, FanOuts, Blobs int }
	}
	if err := json.Unmarshal(out, &done); err != nil ||
		done.Left.Deletions+done.Left.Identities+done.Left.FanOuts+done.Left.Blobs != 0 {
		s.t.Fatalf("annals erase --now: %v\n%s", err, out)
	}
	out, err = exec.CommandContext(s.t.Context(), binary, "doctor", "--data-dir", s.dir).CombinedOutput()
	if err != nil {
		s.t.Errorf("annals doctor: %v\n%s", err, out)
	}
}

// waiting is the output of "annals erase".
func (s *service) waiting() string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), binary, "erase", "--data-dir", s.dir).Output()
	if err != nil {
		s.t.Fatalf("annals erase: %v\n%s", err, out)
	}
	return string(out)
}

// The traits of a removed identity are in no file of the log once "annals erase --now" has returned,
// and a while later without that command. Traits of an identity that exists stay, with their history.
func TestErase_TraitsOfRemovedIdentities(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	key := s.credentials()["ANNALS_PROJECT_KEY"]
	call := func(want int, method, path string, body any) {
		t.Helper()
		if status, answer, err := s.ask(t.Context(), key, method, path, body); err != nil || status != want {
			t.Fatalf("%s %s: %d %s, %v", method, path, status, answer, err)
		}
	}
	said := map[string][]string{}
	for _, name := range []string{"now", "later", "never"} {
		word := runtest.Word
		words := []string{word(), word(), word(), word()}
		said[name] = words
		traits := func(word string) map[string]any { return map[string]any{"traits": map[string]string{"city": word}} }
		call(200, "PUT", "/identities/"+name, traits(words[0]))
		call(200, "PATCH", "/identities/"+name, traits(words[1]))
		call(200, "POST", "/identities/bulk", []any{
			map[string]any{
				"identity": name,
				"traits":   map[string]string{"city": words[2]},
			}, map[string]any{"identity": "other", "traits": map[string]string{}},
		})
		call(200, "PUT", "/identities/"+name, traits(words[3]))
	}
	// Of a word that stands twice in a compressed block, a part may be left.
	found := func(name string) (n int) {
		for _, word := range said[name] {
			if len(blevetest.Holding(t, filepath.Join(s.dir, "log"), word[:14]))+len(
				blevetest.Holding(t, filepath.Join(s.dir, "log"), word[14:]),
			) > 0 {
				n++
			}
		}
		return n
	}
	for name, words := range said {
		if n := found(name); n != len(words) {
			t.Fatalf("before the removal %d of the words of %q are in the log", n, name)
		}
	}
	call(204, "DELETE", "/identities/now", nil)
	s.eraseNow()
	if n := found("now"); n > 0 {
		t.Errorf("erased, and %d words are in the log", n)
	}
	call(204, "DELETE", "/identities/later", nil)
	runtest.Await(t, "nothing waits to be erased", func() bool { return s.waiting() == "nothing waits to be erased\n" })
	if n := found("later"); n > 0 {
		t.Errorf("nothing waits to be erased, and %d words are in the log", n)
	}
	if n := found("never"); n < 2 {
		t.Errorf("%d words of an identity that lives are in the log, and one of them is not history", n)
	}
	call(404, "GET", "/identities/now", nil)
	call(200, "GET", "/identities/never", nil)
}
