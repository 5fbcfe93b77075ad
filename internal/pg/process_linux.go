package pg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// die makes a process end with the thread that started it: a fast shutdown, so that the next start need not recover.
func die(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// namespaceIdentities are the unprivileged users as which root appears in a user namespace of its own: files stay root's, and
// Postgres sees a user id other than 0. initdb wants an id that the machine knows.
func namespaceIdentities() []identity {
	users := namedUsers("annals", "postgres", "daemon", "bin")
	if len(users) == 0 {
		return nil
	}
	inner := users[0] // outside of the namespace it is root, and no user's files are its own
	return []identity{{name: "root as " + inner.name + " in a user namespace", apply: func(attr *syscall.SysProcAttr) {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: inner.uid, HostID: 0, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: inner.gid, HostID: 0, Size: 1}}
	}}}
}

// isServerOf says whether a process is a Postgres that works in a folder.
func isServerOf(pid int, folder string) (bool, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	executable, err := os.Readlink(proc + "/exe")
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// A package that was upgraded meanwhile leaves "postgres (deleted)".
	name := strings.TrimSuffix(filepath.Base(executable), " (deleted)")
	if name != "postgres" && name != "postmaster" {
		return false, nil
	}
	where, err := os.Stat(proc + "/cwd")
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	ours, err := os.Stat(folder)
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return os.SameFile(where, ours), nil
}
