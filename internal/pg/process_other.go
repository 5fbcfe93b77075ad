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

// die does nothing where a process cannot be made to end with its parent: the next start finds such an orphan and stops it.
func die(*syscall.SysProcAttr) {}

// namespaceIdentities are none: user namespaces are Linux's.
func namespaceIdentities() []identity { return nil }

// isServerOf says whether a process is a Postgres that was started on a folder, by its command line.
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
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	command, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	name := filepath.Base(command)
	return (name == "postgres" || name == "postmaster") && strings.Contains(rest, folder), nil
}
