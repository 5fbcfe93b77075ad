// Package announce shows the person who runs the service that it is ready, where it is and what to do next, and logs
// its stop.
package announce

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/build"
)

// Service is what is shown of a service.
type Service struct {
	Data datafolder.Folder
	// New means that the data folder was new and empty at the start.
	New bool
	// OpsAddr is the separate address of the operation routes, "" for none.
	OpsAddr string
	// OwnerLink is where a person takes over the account of the owner, "" if somebody has or cannot see it.
	OwnerLink string
}

// Ready writes that the service is ready: one line, or for a person several.
func (s Service) Ready(to io.Writer, urls auth.URLs, isPerson bool) {
	folder := s.Data.Dir
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	keys, data := filepath.Join(folder, datafolder.CredentialsFile), folder
	if _, err := os.Stat(keys); err != nil {
		keys = "" // those of another process, or removed
	}
	if s.New {
		data += " (new, empty)"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "annals is ready: API on %s, data in %s", urls.API, data)
	if !isPerson {
		if keys != "" {
			fmt.Fprintf(&b, ", credentials in %s", keys)
		}
		_, _ = fmt.Fprintln(to, b.String())
		return
	}
	fmt.Fprintf(&b, "\n  version  %s\n  API      %s (all calls: %s/openapi.yaml)\n  console  %s\n"+
		"  agents   %s%s (Model Context Protocol)\n",
		build.Get().Version, urls.API, urls.API, urls.Console, urls.Console, auth.MCPPath)
	if s.OpsAddr != "" {
		fmt.Fprintf(&b, "  health   http://%s (/readyz, /metrics)\n", s.OpsAddr)
	}
	switch values, err := datafolder.ReadCredentials(s.Data.Dir); {
	case s.OwnerLink != "":
		fmt.Fprintf(&b, "  sign in  %s (once, within an hour)\n", s.OwnerLink)
	case err == nil && values[datafolder.OwnerPasswordName] != "":
		fmt.Fprintf(&b, "  sign in  with %s and %s of the file with the keys\n", datafolder.OwnerEmailName,
			datafolder.OwnerPasswordName)
	default:
		fmt.Fprintf(&b, "  sign in  at the console; who cannot gets a link by   %s person link ADDRESS%s\n", os.Args[0],
			s.folderFlag())
	}
	if keys != "" {
		fmt.Fprintf(&b, "  keys     %s\n", keys)
	}
	fmt.Fprintf(&b, "  next     %[1]s import PATH%[2]s   then   %[1]s recall \"QUESTION\" --identity NAME%[2]s\n"+
		"  stop     Ctrl-C\n", os.Args[0], s.folderFlag())
	_, _ = fmt.Fprint(to, b.String())
}

// folderFlag names the data folder for other commands, "" if it is the default.
func (s Service) folderFlag() string {
	if filepath.Clean(s.Data.Dir) == "data" {
		return ""
	}
	return fmt.Sprintf(" --data-dir %q", s.Data.Dir)
}

// Stop logs when ctx asks for a stop. The caller calls stopped once it has stopped.
func Stop(ctx context.Context, logger *slog.Logger) (stopped func()) {
	began := make(chan time.Time, 1)
	begin := func() {
		logger.InfoContext(ctx, "stopping", "cause", signalOf(context.Cause(ctx)))
		began <- time.Now()
	}
	cancel := context.AfterFunc(ctx, begin)
	return func() {
		notBegun := cancel()
		if ctx.Err() == nil {
			return
		}
		if notBegun { // who waits for ctx may wake before begin runs
			begin()
		}
		took := time.Since(<-began).Round(100 * time.Millisecond)
		logger.InfoContext(ctx, "stopped", "took", took.String())
	}
}

// signalOf returns the usual name of the signal that ended a context.
func signalOf(cause error) string {
	text := cause.Error()
	for word, name := range map[string]string{"terminated": "SIGTERM", "interrupt": "SIGINT", "hangup": "SIGHUP"} {
		if strings.HasPrefix(text, word) {
			return name
		}
	}
	return text
}
