package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/mailboxtest"
	"github.com/annals-project/annals/internal/runtest"
)

// mixedFiles makes a folder with files of several kinds, and one that is no text.
func mixedFiles(t *testing.T) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "mixed")
	var csv, log, mail, records bytes.Buffer
	csv.WriteString("date,person,note\n")
	mail.WriteString("")
	for i := range 3000 {
		day := fmt.Sprintf("2025-%02d-%02d", i%12+1, i%28+1)
		_, _ = fmt.Fprintf(&csv, "%s,Ana,Row %d of the table\n", day, i)
		_, _ = fmt.Fprintf(&records, "{\"id\":\"r%d\",\"date\":%q,\"text\":\"Record %d has a text.\"}\n", i, day, i)
	}
	for i := range 40 {
		_, _ = fmt.Fprintf(&mail, "From ana@example.com Mon Mar  3 09:%02d:00 2025\nFrom: Ana <ana@example.com>\nTo: bo@example.com\n"+
			"Subject: Mail %d\nMessage-ID: <%d@example.com>\nDate: Mon, 03 Mar 2025 09:%02d:00 +0000\n\nThis is mail number %d.\n\n", i, i, i, i, i)
		_, _ = fmt.Fprintf(&log, "[2025-04-%02d 10:00] Bo: Message %d of the chat\n", i%28+1, i)
	}
	for name, text := range map[string]string{
		"rows.csv": csv.String(), "data/records.jsonl": records.String(), "mail/box.mbox": mail.String(), "chat.txt": log.String(),
		"docs/guide.md": "# Guide\n\nHow it works.\n\n## Use\n\nPress the button.\n", "note.txt": "Remember the milk on Friday.\n",
		"main.go":     "package main\n\n// main greets.\nfunc main() { println(\"hi\") }\n",
		"picture.png": "\x89PNG\x00\x01\x02", ".git/config": "hidden",
	} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		runtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return folder
}

// An import of files of many kinds that is killed three times ends with exactly the data points of the estimate.
func TestImport_FilesKilledThreeTimes(t *testing.T) {
	t.Parallel()
	s := newService(t, sharedPostgres(t))
	s.start()
	folder := mixedFiles(t)
	progress := folder + ".progress"
	var want client.Estimate
	runtest.Must(t, json.Unmarshal([]byte(s.annals("estimate", folder, "--json")), &want))
	if want.DataPoints < 6000 {
		t.Fatalf("the estimate has %d data points: %+v", want.DataPoints, want.Files)
	}
	run := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"import", folder, "--data-dir", s.dir, "--parallel", "1"}, args...)...)
	}
	out, err := run().CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 2 || !strings.Contains(string(out), "add --yes") {
		t.Fatalf("without a terminal: %v %s", err, out)
	}
	acknowledged := func() int {
		text, _ := os.ReadFile(progress)
		return bytes.Count(text, []byte(`"sent"`))
	}
	for kill := range 3 {
		cmd := run("--yes")
		runtest.Must(t, cmd.Start())
		runtest.Await(t, "one more batch is acknowledged", func() bool { return acknowledged() > kill })
		runtest.Must(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatalf("the import ended before it was killed, with %d batches", acknowledged())
		}
		if kill == 1 { // a crash cut the line of the last batch, and the service went down too
			text, err := os.ReadFile(progress)
			runtest.Must(t, err)
			runtest.Must(t, os.WriteFile(progress, text[:len(text)-9], 0o600))
			s.kill()
			s.start()
		}
	}
	var sum struct{ Points, Sent, Unchanged, Skipped, Files int }
	out, err = run("--yes", "--json", "--wait").Output()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 3 {
		t.Fatalf("the last run, with a picture that is skipped: %v %s", err, out)
	}
	runtest.Must(t, json.Unmarshal(out, &sum))
	if sum.Points != want.DataPoints || sum.Sent >= sum.Points || sum.Skipped != 1 || sum.Files != 8 {
		t.Errorf("the last run: %+v", sum)
	}
	points, _ := exported(t, s.annals("export", "--project", "default"))
	if len(points) != want.DataPoints {
		t.Errorf("%d data points, the estimate named %d", len(points), want.DataPoints)
	}
	var ids, named []string
	for _, line := range points {
		var p struct{ ID string }
		runtest.Must(t, json.Unmarshal([]byte(line), &p))
		ids = append(ids, p.ID)
	}
	full := client.EstimateRequest{}
	for _, f := range []string{"rows.csv", "data/records.jsonl", "mail/box.mbox", "chat.txt", "docs/guide.md", "note.txt", "main.go"} {
		text, err := os.ReadFile(filepath.Join(folder, f))
		runtest.Must(t, err)
		full.Files = append(full.Files, client.EstimateFile{Path: "mixed/" + f, Content: string(text)})
	}
	_, err = s.client().EstimateFull(t.Context(), full, func() error { named = nil; return nil },
		func(p client.EstimatedPoint) error { named = append(named, p.ID); return nil })
	runtest.Must(t, err)
	slices.Sort(ids)
	slices.Sort(named)
	if diff := cmp.Diff(named, ids); diff != "" {
		t.Errorf("data points: %.1000s", diff)
	}
	// A run after the last has nothing to send and does not ask.
	out, err = run().CombinedOutput()
	if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 3 || !strings.Contains(string(out), "0 data points sent in 0 batches") {
		t.Errorf("a further run: %v %s", err, out)
	}
}

// mailboxMessages is how many messages the mailbox has, unless ANNALS_MAILBOX_MESSAGES names another number.
const mailboxMessages = 2000

// An import of a mailbox that is killed twice ends with each message once.
func TestImport_MailboxKilledTwice(t *testing.T) {
	t.Parallel()
	messages := setting(t, "ANNALS_MAILBOX_MESSAGES", mailboxMessages)
	s := worked.of(t)
	p := s.project("Mailbox")
	folder := filepath.Join(t.TempDir(), "mail")
	runtest.Must(t, os.Mkdir(folder, 0o700))
	runtest.Must(t, mailboxtest.Write(folder, messages))
	run := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"import", folder, "--data-dir", s.dir, "--key", p.key, "--parallel", "1", "--yes"}, args...)...)
	}
	for kill := range 2 {
		cmd := run()
		runtest.Must(t, cmd.Start())
		runtest.Await(t, "one more batch is acknowledged", func() bool {
			text, err := os.ReadFile(folder + ".progress")
			return err == nil && bytes.Count(text, []byte(`"sent"`)) > kill
		})
		runtest.Must(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("the import ended before it was killed")
		}
	}
	out, err := run("--json").Output()
	if err != nil {
		t.Fatalf("the last run: %v %s", err, out)
	}
	var sum struct{ Points, Sent, Deleted, Refused int }
	runtest.Must(t, json.Unmarshal(out, &sum))
	if sum.Points != messages || sum.Sent >= messages || sum.Deleted+sum.Refused > 0 {
		t.Errorf("the last run: %+v", sum)
	}
	lines, _ := exported(t, s.annals("export", "--project", p.slug))
	found := map[string]string{}
	for _, line := range lines {
		var p struct{ ID, Content, Timestamp string }
		runtest.Must(t, json.Unmarshal([]byte(line), &p))
		found[p.ID] = p.Content
	}
	if len(lines) != messages || len(found) != messages {
		t.Errorf("%d data points with %d ids: want %d", len(lines), len(found), messages)
	}
	for n := range messages {
		content := found[fmt.Sprintf("email:%d@example.org", n)]
		if strings.Count(content, "marker-") != 1 || !strings.Contains(content, mailboxtest.Word(n)) ||
			!strings.Contains(content, "Note: be early.") || strings.ContainsRune(content, '\ufffd') {
			t.Fatalf("message %d is %q", n, content)
		}
	}
}

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
	texts := setting(t, "ANNALS_CLIENT_TEXTS", 0)
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
	runtest.Must(t, <-done)

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
