package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
)

func TestAnnouncement_Ready(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, datafolder.CredentialsFile)
	runtest.Must(t, os.WriteFile(keys, nil, 0o600))
	urls := auth.URLs{API: "http://127.0.0.1:8080", Console: "http://127.0.0.1:8081"}
	s := announcement{Data: datafolder.Folder{Dir: dir}, New: true, OpsAddr: "127.0.0.1:9090"}
	var program, person bytes.Buffer
	s.ready(&program, urls, false)
	want := "annals is ready: API on http://127.0.0.1:8080, data in " + dir + " (new, empty), credentials in " + keys + "\n"
	if program.String() != want {
		t.Errorf("a program is shown %q, want %q", &program, want)
	}
	s.ready(&person, urls, true)
	for _, want := range []string{
		"http://127.0.0.1:8080/openapi.yaml", "http://127.0.0.1:8081", "http://127.0.0.1:8081/mcp", "127.0.0.1:9090", keys, "import PATH", "recall",
		"(new, empty)", "--data-dir",
	} {
		if !strings.Contains(person.String(), want) {
			t.Errorf("a person is not shown %q: %s", want, &person)
		}
	}
	for want, does := range map[string]func(){
		"person link ADDRESS": func() {},
		"with ANNALS_OWNER_EMAIL and ANNALS_OWNER_PASSWORD of the file": func() {
			runtest.Must(t, os.WriteFile(keys, []byte("ANNALS_OWNER_PASSWORD=x\n"), 0o600))
		},
		"http://127.0.0.1:8081/enter/x (once": func() { s.OwnerLink = "http://127.0.0.1:8081/enter/x" },
	} {
		was := s
		does()
		person.Reset()
		s.ready(&person, urls, true)
		if !strings.Contains(person.String(), want) || strings.Count(person.String(), "  sign in  ") != 1 {
			t.Errorf("a person is not shown %q: %s", want, &person)
		}
		if s = was; os.WriteFile(keys, nil, 0o600) != nil {
			t.Fatal("the file cannot be emptied")
		}
	}
	t.Chdir(filepath.Dir(dir))
	s = announcement{Data: datafolder.Folder{Dir: filepath.Base(dir)}}
	program.Reset()
	s.ready(&program, urls, false)
	if want := ", data in " + dir + ", credentials in"; !strings.Contains(program.String(), want) {
		t.Errorf("a relative folder is shown as %q", &program)
	}
}

func TestAnnounceStop_NamesTheSignal(t *testing.T) {
	var log bytes.Buffer
	ctx, release := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer release()
	stopped := announceStop(ctx, slog.New(slog.NewTextHandler(&log, nil)))
	runtest.Must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	stopped()
	if text := log.String(); !strings.Contains(text, "msg=stopping cause=SIGTERM") ||
		!strings.Contains(text, "msg=stopped took=") {
		t.Errorf("logged %s", text)
	}
}

func TestAnnounceStop_OfAFailure(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	announceStop(ctx, slog.New(slog.NewTextHandler(&log, nil)))()
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
}

func TestHeapAim(t *testing.T) {
	const gib = 1 << 30
	big := "MemTotal:       65536000 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, mostHeap},
		"big machine":   {map[string]string{"proc/meminfo": big}, mostHeap},
		"small machine": {map[string]string{"proc/meminfo": "MemTotal: 1048576 kB\n"}, gib * 40 / 100},
		"cgroup 2": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 2, the one above is narrower": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "268435456\n",
		}, gib / 4 * 40 / 100},
		"cgroup 2, container": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/../../kubepods/x\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 2, no limit": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, mostHeap},
		"cgroup 1": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 1, no limit": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, mostHeap},
		"wider than the machine": {map[string]string{
			"proc/meminfo": "MemTotal: 1048576 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8589934592\n",
		}, gib * 40 / 100},
		"unreadable": {map[string]string{
			"proc/meminfo": "MemTotal: many kB\n", "proc/self/cgroup": "0:\n", "sys/fs/cgroup/memory.max": "much\n",
		}, mostHeap},
	} {
		system := fstest.MapFS{}
		for name, text := range c.files {
			system[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := heapAim(system); got != c.want {
			t.Errorf("%s: got %d MiB, want %d MiB", name, got>>20, c.want>>20)
		}
	}
}
