package announce

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

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/auth"
)

func TestService_Ready(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, datafolder.CredentialsFile)
	if err := os.WriteFile(keys, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	urls := auth.URLs{API: "http://127.0.0.1:8080", Console: "http://127.0.0.1:8081"}
	s := Service{Data: datafolder.Folder{Dir: dir}, New: true, OpsAddr: "127.0.0.1:9090"}
	var program, person bytes.Buffer
	s.Ready(&program, urls, false)
	want := "annals is ready: API on http://127.0.0.1:8080, data in " + dir + " (new, empty), credentials in " + keys + "\n"
	if program.String() != want {
		t.Errorf("a program is shown %q, want %q", &program, want)
	}
	s.Ready(&person, urls, true)
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
			if err := os.WriteFile(keys, []byte("ANNALS_OWNER_PASSWORD=x\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"http://127.0.0.1:8081/enter/x (once": func() { s.OwnerLink = "http://127.0.0.1:8081/enter/x" },
	} {
		was := s
		does()
		person.Reset()
		s.Ready(&person, urls, true)
		if !strings.Contains(person.String(), want) || strings.Count(person.String(), "  sign in  ") != 1 {
			t.Errorf("a person is not shown %q: %s", want, &person)
		}
		if s = was; os.WriteFile(keys, nil, 0o600) != nil {
			t.Fatal("the file cannot be emptied")
		}
	}
	t.Chdir(filepath.Dir(dir))
	s = Service{Data: datafolder.Folder{Dir: filepath.Base(dir)}}
	program.Reset()
	s.Ready(&program, urls, false)
	if want := ", data in " + dir + ", credentials in"; !strings.Contains(program.String(), want) {
		t.Errorf("a relative folder is shown as %q", &program)
	}
}

func TestStop_NamesTheSignal(t *testing.T) {
	var log bytes.Buffer
	ctx, release := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer release()
	stopped := Stop(ctx, slog.New(slog.NewTextHandler(&log, nil)))
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	stopped()
	if text := log.String(); !strings.Contains(text, "msg=stopping cause=SIGTERM") ||
		!strings.Contains(text, "msg=stopped took=") {
		t.Errorf("logged %s", text)
	}
}

func TestStop_OfAFailure(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	Stop(ctx, slog.New(slog.NewTextHandler(&log, nil)))()
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
}
