package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	client "github.com/annals-project/annals/client"
)

// A backup made under load and restored elsewhere serves everything that was acknowledged before it
// began: it is recalled, its status stands, and the keys that the first installation handed out are
// good at the second. The first one goes on.
func TestBackup_UnderLoadThenRestore(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start()
	c := s.client()
	before := map[string]string{} // ingestion ids by source
	for i := range 12 {
		id := fmt.Sprintf("before-%d", i)
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: fmt.Sprintf("Person%d lives in Town%d and likes tea", i, i)})
		if err != nil {
			t.Fatal(err)
		}
		before[id] = r.IngestionID
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 3 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				point := client.DataPoint{
					ID:      fmt.Sprintf("during-%d-%d", w, i),
					Content: fmt.Sprintf("Visitor%d saw House%d", w, i),
				}
				if _, err := c.Ingest(context.WithoutCancel(ctx), point); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	backup := filepath.Join(t.TempDir(), "backup")
	out, err := exec.CommandContext(t.Context(), binary, "backup", backup, "--data-dir", s.dir).CombinedOutput()
	stop()
	load.Wait()
	if err != nil || !strings.Contains(string(out), "backed up to "+backup) {
		t.Fatalf("annals backup: %v\n%s", err, out)
	}
	s.stop()

	restored := newService(t)
	out, err = exec.CommandContext(t.Context(), binary, "restore", backup, "--data-dir", restored.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("annals restore: %v\n%s", err, out)
	}
	restored.start()
	rc := restored.client()
	for i := range 12 {
		id := fmt.Sprintf("before-%d", i)
		completed(t.Context(), t, rc, before[id])
		page, err := rc.Recall(t.Context(),
			client.RecallRequest{Query: fmt.Sprintf("Where does Person%d live? Town%d", i, i), Identity: "x"})
		if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != id {
			t.Errorf("recall of %s: %+v, %v", id, page, err)
		}
	}
	r, err := rc.Ingest(t.Context(), client.DataPoint{ID: "after", Content: "Anna moved to Porto"})
	if err != nil {
		t.Fatal(err)
	}
	completed(t.Context(), t, rc, r.IngestionID)
}

// Nothing that uses a data folder depends on the characters of its name: the private Postgres, the index, the operator
// socket, the credentials, a backup and a restore.
func TestBackup_FolderWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	const name = "ä b+c%20'"
	root, err := os.MkdirTemp("/tmp", "annals-e2e-") //nolint:usetesting // its path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	s := newService(t)
	s.dir = filepath.Join(root, "1", name)
	s.start()
	r, err := s.client().Ingest(t.Context(), client.DataPoint{ID: "a", Content: "Anna likes tea"})
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(root, "2", name)
	for _, args := range [][]string{
		{"status", "--data-dir", s.dir}, {"failed", "--data-dir", s.dir}, {"backup", backup, "--data-dir", s.dir},
	} {
		if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
			t.Fatalf("annals %s: %v\n%s", args[0], err, out)
		}
	}
	// A mistake of the person is no failure of the server.
	again, err := exec.CommandContext(t.Context(), binary, "backup", backup, "--data-dir", s.dir).CombinedOutput()
	if err == nil || !strings.HasPrefix(string(again), "annals: back up into ") || !strings.Contains(string(again), "not empty") {
		t.Errorf("a second backup into the folder: %v\n%s", err, again)
	}
	s.stop()

	restored := newService(t)
	restored.dir = filepath.Join(root, "3", name)
	out, err := exec.CommandContext(t.Context(), binary, "restore", backup, "--data-dir", restored.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("annals restore: %v\n%s", err, out)
	}
	restored.start()
	c := restored.client()
	completed(t.Context(), t, c, r.IngestionID)
	page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What does Anna like?", Identity: "x"})
	if err != nil || len(page.Results) == 0 || page.Results[0].Sources[0].SourceID != "a" {
		t.Errorf("recall: %+v, %v", page, err)
	}
}
