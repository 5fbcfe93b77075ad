//go:build !linux

package pg

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// setParentDeathSignal does nothing: the system has no death signal. The next start stops a server
// that was left running.
func setParentDeathSignal(*syscall.SysProcAttr) {}

// namespaceUsers returns none: only Linux has user namespaces.
func namespaceUsers() []osUser { return nil }

// serversOf does not know: the system lists no working folders.
func serversOf(string) (pids []int, known bool, err error) { return nil, false, nil }

// isServerOf reports whether a process is a Postgres that was started on a folder, by its command
// line.
func isServerOf(pid int, folder string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid))
	cmd.Env = environment()
	out, err := cmd.Output()
	if _, gone := errors.AsType[*exec.ExitError](err); gone {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	command, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	name := filepath.Base(command)
	return (name == "postgres" || name == "postmaster") && strings.Contains(rest, folder), nil
}
