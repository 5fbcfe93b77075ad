package pg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// setParentDeathSignal makes a process shut down fast when the thread that started it ends, so that
// the next start need not recover.
func setParentDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// namespaceUsers returns the user that root becomes inside a user namespace, if there is one.
// Outside, the process is root and its files belong to root; inside, Postgres sees the id of an
// unprivileged user. initdb requires an id that is in the user database of the machine.
func namespaceUsers() []osUser {
	users := namedUsers("annals", "postgres", "daemon", "bin")
	if len(users) == 0 {
		return nil
	}
	inner := users[0]
	return []osUser{{name: "root as " + inner.name + " in a user namespace", apply: func(attr *syscall.SysProcAttr) {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: inner.uid, HostID: 0, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: inner.gid, HostID: 0, Size: 1}}
	}}}
}

// isServerOf reports whether a process is a Postgres whose working folder is folder.
func isServerOf(pid int, folder string) (bool, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	executable, err := os.Readlink(proc + "/exe")
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	// After an upgrade of the package, the link reads "postgres (deleted)".
	name := strings.TrimSuffix(filepath.Base(executable), " (deleted)")
	if name != "postgres" && name != "postmaster" {
		return false, nil
	}
	where, err := os.Stat(proc + "/cwd")
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	ours, err := os.Stat(folder)
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	return os.SameFile(where, ours), nil
}
