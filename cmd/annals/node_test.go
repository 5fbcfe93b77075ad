package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/fakeapitest"
	"github.com/annals-project/annals/internal/runtest"
)

// runningNode is "annals node" in this process.
type runningNode struct {
	// address is what it printed after "annals node is ready: ".
	address string
	stop    func() outcome
}

// startNode runs "annals node" until the test ends or stop is called.
func startNode(t *testing.T, args ...string) *runningNode {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan outcome, 1)
	go func() {
		noVariable := func(string) string { return "" }
		args := append([]string{"node", "--addr", "127.0.0.1:0"}, args...)
		code := run(ctx, args, noVariable, strings.NewReader(""), in, &stderr)
		_ = in.Close()
		done <- outcome{code: code, stderr: stderr.String()}
	}()
	lines := bufio.NewScanner(out)
	n := &runningNode{}
	var ended *outcome
	n.stop = func() outcome {
		if ended == nil {
			cancel()
			for lines.Scan() {
				t.Errorf("printed more than one line: %s", lines.Text())
			}
			o := <-done
			ended = &o
		}
		return *ended
	}
	t.Cleanup(func() {
		if o := n.stop(); o.code != exitOK {
			t.Errorf("node ended with %+v", o)
		}
	})
	if !lines.Scan() {
		t.Fatalf("node ended: %+v", <-done)
	}
	address, ok := strings.CutPrefix(lines.Text(), "annals node is ready: ")
	if !ok {
		t.Fatalf("printed %q", lines.Text())
	}
	n.address = address
	return n
}

// openStore connects with a connection string and nothing else.
func openStore(t *testing.T, address string) *esdb.Store {
	t.Helper()
	store, err := esdb.Open(esdb.Config{ConnectionString: address, Logger: slog.New(slog.DiscardHandler)})
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, store.Close()) })
	return store
}

func TestNodeAlone_ServesClients(t *testing.T) {
	dir := t.TempDir()
	for start := range 2 {
		n := startNode(t, "--data-dir", dir, "--insecure")
		if !strings.HasPrefix(n.address, "esdb://127.0.0.1:") || !strings.HasSuffix(n.address, "?tls=false") {
			t.Fatalf("address %q", n.address)
		}
		appendEvents(t, openStore(t, n.address), "s", start, `{"n":1}`)
		if o := n.stop(); o.code != exitOK || o.stderr != "" {
			t.Fatalf("got %+v", o)
		}
	}
}

func TestNodeAlone_RequiresPassword(t *testing.T) {
	cert, key, file := nodetest.Files(t, "cert and more.pem", "open sesame")
	n := startNode(t, "--data-dir", t.TempDir(), "--cert", cert, "--key", key, "--password-file", file)
	address, note, _ := strings.Cut(n.address, " ")
	if note != "(user admin, password in "+file+")" || strings.Contains(n.address, "sesame") {
		t.Fatalf("address %q", n.address)
	}
	known := strings.Replace(address, "esdb://", "esdb://admin:open%20sesame@", 1)
	appendEvents(t, openStore(t, known), "s", 0, "{}")
	for _, wrong := range []string{address, strings.Replace(address, "esdb://", "esdb://admin:changeit@", 1)} {
		if _, err := openStore(t, wrong).Head(t.Context()); err == nil || !strings.Contains(err.Error(), "password") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNodeAlone_CannotStart(t *testing.T) {
	cert, key, file := nodetest.Files(t, "cert and more.pem", "secret")
	_, otherKey, _ := nodetest.Files(t, "cert and more.pem", "secret")
	open, two := fakeapitest.Write(t, "open", "secret"), fakeapitest.Write(t, "two", "a\nb\n")
	runtest.Must(t, os.Chmod(open, 0o604))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	used := t.TempDir()
	startNode(t, "--data-dir", used, "--insecure")
	newer := t.TempDir()
	startNode(t, "--data-dir", newer, "--insecure").stop()
	runtest.Must(t, os.WriteFile(filepath.Join(newer, "log", "FORMAT"), []byte("annals-log 99\n"), 0o600))
	tls := []string{"--cert", cert, "--key", key, "--password-file"}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"neither":                 {nil, "a node needs --cert, --key and --password-file, or --insecure on a loopback address"},
		"half":                    {[]string{"--cert", cert, "--key", key}, "a node needs --cert, --key and --password-file"},
		"both":                    {append([]string{"--insecure"}, append(tls, file)...), "--insecure excludes"},
		"insecure for all":        {[]string{"--insecure", "--addr", "0.0.0.0:0"}, "loopback address only"},
		"no certificate":          {[]string{"--cert", "missing.pem", "--key", key, "--password-file", file}, "load the certificate: open missing.pem"},
		"another key":             {[]string{"--cert", cert, "--key", otherKey, "--password-file", file}, "private key does not match"},
		"no password file":        {append(tls, "missing"), "read the password: open missing"},
		"an empty password":       {append(tls, fakeapitest.Write(t, "empty", "\n")), "holds no password"},
		"two lines":               {append(tls, two), "holds no password, or more than one line"},
		"a password for all":      {append(tls, open), "every user of this machine may open the password file " + open + " (mode 0604): chmod 600 it"},
		"an address in use":       {[]string{"--insecure", "--addr", l.Addr().String()}, "the address " + l.Addr().String() + " is in use"},
		"no address":              {[]string{"--insecure", "--addr", "nowhere"}, "missing port"},
		"a folder in use":         {[]string{"--insecure", "--data-dir", used}, "data folder " + filepath.Join(used, "log") + " is in use"},
		"a folder of a newer one": {[]string{"--insecure", "--data-dir", newer}, "format 99"},
		"a folder that is none":   {[]string{"--insecure", "--data-dir", open}, "data folder"},
		"a level that is none":    {[]string{"--insecure", "--log-level", "loud"}, `--log-level is "loud"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := annals(t.Context(), nil, "",
				append([]string{"node", "--data-dir", t.TempDir(), "--addr", "127.0.0.1:0"}, tt.args...)...)
			got.fails(t, exitFailed, tt.want)
		})
	}
}

// appendEvents appends one event for each payload, at a revision.
func appendEvents(t *testing.T, store *esdb.Store, stream string, at int, payloads ...string) {
	t.Helper()
	var events []eventstore.Proposed
	for i, p := range payloads {
		events = append(events, eventstore.Proposed{ID: uuid.New(), Type: fmt.Sprintf("tested.v%d", i+1), Data: []byte(p), Meta: []byte(`{"by":"test"}`)})
	}
	runtest.Must(t, errorOf(store.Append(t.Context(), stream, eventstore.Revision(at-1), events)))
}
