package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/mailboxes"
	"github.com/annals-project/annals/internal/runtest"
)

// mailboxMessages is how many messages the mailbox has, unless ANNALS_MAILBOX_MESSAGES names another number.
const mailboxMessages = 2000

// An import of a mailbox that is killed twice ends with each message once.
func TestImport_MailboxKilledTwice(t *testing.T) {
	t.Parallel()
	messages := int(setting(t, "ANNALS_MAILBOX_MESSAGES", mailboxMessages))
	s := newService(t, sharedPostgres(t))
	s.start()
	folder := filepath.Join(t.TempDir(), "mail")
	runtest.Must(t, os.Mkdir(folder, 0o700))
	runtest.Must(t, mailboxes.Write(folder, messages))
	run := func(args ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"import", folder, "--data-dir", s.dir, "--parallel", "1", "--yes"}, args...)...)
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
	lines, _ := exported(t, s.annals("export", "--project", "default"))
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
		if strings.Count(content, "marker-") != 1 || !strings.Contains(content, mailboxes.Word(n)) ||
			!strings.Contains(content, "Note: be early.") || strings.ContainsRune(content, '\ufffd') {
			t.Fatalf("message %d is %q", n, content)
		}
	}
}
