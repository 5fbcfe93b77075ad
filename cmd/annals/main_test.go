package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
)

// clockFile names the variable that makes the test binary the program itself, with a clock that a
// test moves: the file holds by how many seconds it is ahead of the machine's.
const clockFile = "ANNALS_TEST_CLOCK_FILE"

func TestMain(m *testing.M) {
	file := os.Getenv(clockFile)
	if file == "" {
		// Checkpoints come while nothing is to happen: tests that compare logs would see them.
		if err := os.Setenv("ANNALS_AUDIT_SECONDS", "3600"); err != nil {
			panic(err)
		}
		pgtest.Main(m)
	}
	code := runIn(untilStop(), os.Args[1:], &Env{
		Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: func() time.Time {
			ahead, err := readClock(file)
			if err != nil {
				panic(err)
			}
			return time.Now().Add(ahead)
		},
	})
	os.Exit(code)
}

func readClock(file string) (time.Duration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(seconds) * time.Second, nil
}

// program is the program with the clock of the machine, for a test to start.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	clock := filepath.Join(t.TempDir(), "clock")
	writeClock(t, clock, time.Now())
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), clockFile+"="+clock)
	return cmd
}

// startServe runs the program as a service on a new data folder, until the test ends.
func startServe(t *testing.T, more ...string) (dir string, service *exec.Cmd) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	service = program(t, append([]string{
		"serve", "--data-dir", dir, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0",
	}, more...)...)
	out, err := service.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, service.Start())
	t.Cleanup(func() {
		_ = service.Process.Signal(os.Interrupt)
		_ = service.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "annals is ready") {
		t.Fatalf("it prints %q, %v", line, err)
	}
	return dir, service
}

// writeClock sets the time of the programs that read the file, atomically.
func writeClock(t *testing.T, file string, at time.Time) {
	t.Helper()
	next := file + ".next"
	runtest.Must(t, os.WriteFile(next, []byte(strconv.FormatInt(int64(time.Until(at)/time.Second), 10)), 0o600))
	runtest.Must(t, os.Rename(next, file))
}
