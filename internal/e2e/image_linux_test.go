package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// imageUser is the user of the image.
const imageUser = 65532

// image is what the last stage of deploy/Dockerfile holds, unpacked into a folder.
type image struct {
	t    *testing.T
	root string
	// env are the variables of the image, and nothing else.
	env                     []string
	data                    string
	entrypoint, cmd, health []string
	// isolated is true if the kernel lets this user make the folder the root of a process.
	isolated bool
}

// The image serves from a root that it does not write to, as its user, with no other variable
// than its own and the settings, on an event store and a Postgres that it reaches over the network.
func TestImage_ServesFromItsRoot(t *testing.T) {
	i := unpackImage(t)
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	node, api := runtest.FreeAddress(t), runtest.FreeAddress(t)
	i.start("node", nil, append(slices.Clone(i.entrypoint), "node", "--insecure", "--addr", node)...)
	settings := []string{
		"ANNALS_API_ADDR=" + api, "ANNALS_OPS_ADDR=" + runtest.FreeAddress(t), "ANNALS_CONSOLE_ADDR=127.0.0.1:0",
		"ANNALS_EVENTSTORE=esdb://" + node + "?tls=false", "ANNALS_POSTGRES=" + postgresOverTCP(t),
		"ANNALS_HASH_KEY=" + key, "ANNALS_SEAL_KEY=" + key, "ANNALS_MIN_FREE_DISK=0", "ANNALS_LOG_LEVEL=warn",
	}
	if out, err := i.program(settings, i.health...).CombinedOutput(); err == nil {
		t.Errorf("the image is healthy before it runs: %s", out)
	}
	before := i.files()
	i.start("serve", settings, slices.Concat(i.entrypoint, i.cmd)...)
	for _, check := range [][]string{i.health, append(slices.Clone(i.health), "--ready")} {
		eventually(t, strings.Join(check, " "), func() error {
			out, err := i.program(settings, check...).CombinedOutput()
			if err != nil {
				return errors.New(string(out))
			}
			return nil
		})
	}
	installed := &service{t: t, dir: filepath.Join(i.root, i.data)}
	c, err := client.New("http://"+api, installed.credentials()["ANNALS_PROJECT_KEY"])
	runtest.Must(t, err)
	runtest.Must(t, errorOf(c.Ingest(t.Context(), client.DataPoint{ID: "a", Content: "Ana likes green tea."})))
	eventually(t, "the text is recalled", func() error {
		found, err := c.Recall(t.Context(), client.RecallRequest{Query: "tea", Identity: "ana"})
		if err == nil && len(found.Results) == 0 {
			err = errors.New("nothing is found")
		}
		return err
	})
	if after := i.files(); !maps.Equal(before, after) {
		t.Errorf("the root changed: %v, before %v", after, before)
	}
}

// The image holds no Postgres. Without the address of one the start fails with one line.
func TestImage_WithoutPostgres(t *testing.T) {
	i := unpackImage(t)
	if !i.isolated {
		t.Skip("the kernel refuses a root of its own, and this machine has a Postgres")
	}
	settings := []string{
		"ANNALS_API_ADDR=127.0.0.1:0", "ANNALS_OPS_ADDR=127.0.0.1:0", "ANNALS_CONSOLE_ADDR=127.0.0.1:0",
		"ANNALS_LOG_LEVEL=warn",
	}
	var exit *exec.ExitError
	out, err := i.program(settings, slices.Concat(i.entrypoint, i.cmd)...).CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || bytes.Count(out, []byte("\n")) != 1 ||
		!bytes.Contains(out, []byte("ANNALS_POSTGRES")) {
		t.Errorf("ended with %v: %s", err, out)
	}
}

// unpackImage makes the root of the image as the Dockerfile does.
func unpackImage(t *testing.T) *image {
	t.Helper()
	if os.Getenv("ANNALS_TEST_IMAGE") == "" {
		t.Skip("make test-deploy sets ANNALS_TEST_IMAGE, since the program is built for the image alone")
	}
	i := &image{t: t, root: filepath.Join(t.TempDir(), "root")}
	stages := strings.Split(readDockerfile(t), "\nFROM ")
	build, last := stages[1], stages[len(stages)-1]
	if !strings.HasPrefix(last, "scratch\n") {
		t.Fatalf("the image is not made from scratch: %s", last)
	}
	for line := range strings.Lines(last) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "ENV":
			i.env = append(i.env, value)
		case "ENTRYPOINT":
			i.entrypoint = words(t, value)
		case "CMD":
			i.cmd = words(t, value)
		case "HEALTHCHECK":
			_, value, _ = strings.Cut(value, "CMD ")
			i.health = words(t, value)
		case "VOLUME":
			i.data = value
		case "USER":
			if value != "65532:65532" {
				t.Errorf("the user of the image is %s", value)
			}
		}
	}
	i.compile(build)
	// A folder of the owner that nobody may write to, but for the volume.
	for _, dir := range []string{i.data, "/etc/ssl/certs"} {
		runtest.Must(t, os.MkdirAll(filepath.Join(i.root, dir), 0o755))
	}
	i.protect()
	i.isolated = true
	if out, err := i.program(nil, i.entrypoint[0], "--help").CombinedOutput(); err != nil {
		t.Logf("the kernel refuses a root of its own, so the program runs with that of the machine: %v\n%s", err, out)
		i.isolated = false
		i.entrypoint[0], i.health[0] = filepath.Join(i.root, i.entrypoint[0]), filepath.Join(i.root, i.health[0])
		for n, value := range i.env {
			i.env[n] = strings.Replace(value, i.data, filepath.Join(i.root, i.data), 1)
		}
	}
	return i
}

// compile builds the program with the command of the build stage.
func (i *image) compile(build string) {
	i.t.Helper()
	target := filepath.Join(i.root, i.entrypoint[0])
	runtest.Must(i.t, os.MkdirAll(filepath.Dir(target), 0o755))
	found := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(build)
	if found == nil || !strings.Contains(found[1], " -o /out/annals ") {
		i.t.Fatalf("the build stage has no build of /out/annals: %s", build)
	}
	cmd := exec.Command("sh", "-c", strings.Replace(found[1], "/out/annals", "'"+target+"'", 1))
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatalf("%s: %v\n%s", found[1], err, out)
	}
}

// protect takes the right to write from every folder of the root but the volume.
func (i *image) protect() {
	i.t.Helper()
	mode := func(mode fs.FileMode) error {
		return filepath.WalkDir(i.root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if name == filepath.Join(i.root, i.data) {
				return fs.SkipDir
			}
			return os.Chmod(name, mode)
		})
	}
	runtest.Must(i.t, mode(0o555))
	i.t.Cleanup(func() { runtest.Must(i.t, mode(0o755)) })
}

// program makes a command that runs in the root of the image, as its user and with its variables.
func (i *image) program(settings []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(i.t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.Dir = append(slices.Clone(i.env), settings...), "/"
	if !i.isolated {
		return cmd
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: i.root, Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: os.Getgid(), Size: 1}},
		Credential:  &syscall.Credential{Uid: imageUser, Gid: imageUser, NoSetGroups: true},
	}
	return cmd
}

// start runs a program of the image until the test ends.
func (i *image) start(name string, settings []string, args ...string) {
	i.t.Helper()
	log := &runtest.Output{}
	cmd := i.program(settings, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = readyLimit
	runtest.Must(i.t, cmd.Start())
	i.t.Cleanup(func() {
		// The context of the test has ended, which asks the program to end.
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 0 {
			i.t.Errorf("%s ended with %v", name, err)
		}
		if i.t.Failed() {
			i.t.Logf("%s said:\n%s", name, log.Tail(8<<10))
		}
	})
}

// files returns the files of the root outside the volume, with their sizes and times.
func (i *image) files() map[string]string {
	i.t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(i.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == filepath.Join(i.root, i.data) {
			return errors.Join(err, fs.SkipDir)
		}
		info, err := entry.Info()
		if err == nil {
			found[name] = info.Mode().String() + info.ModTime().String()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.SkipDir) {
		i.t.Fatal(err)
	}
	return found
}

func readDockerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "Dockerfile"))
	runtest.Must(t, err)
	return string(text)
}

// words reads the words of an instruction, which must be in the form that needs no shell.
func words(t *testing.T, value string) (list []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		t.Fatalf("%s needs a shell: %v", value, err)
	}
	return list
}

// postgresOverTCP returns the address of a database that is reached over the network, as that of an
// image is: the server of the tests listens on a Unix socket only.
func postgresOverTCP(t *testing.T) string {
	t.Helper()
	server, err := pgx.ParseConfig(pgtest.URL(t))
	runtest.Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer func() { _ = from.Close() }()
				network, address := pgconn.NetworkAddress(server.Host, server.Port)
				to, err := net.Dial(network, address)
				if err != nil {
					return // the caller sees the end of its connection
				}
				defer func() { _ = to.Close() }()
				go func() {
					_, _ = io.Copy(to, from)
					_ = to.Close()
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
	return "postgres://" + server.User + "@" + l.Addr().String() + "/" + server.Database + "?sslmode=disable"
}
