package pg

import (
	"errors"
	"fmt"
	"io/fs"
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

// serversOf returns the processes of Postgres whose working folder is folder. known is false in a root
// without /proc.
func serversOf(folder string) (pids []int, known bool, err error) {
	return serversIn(processes, folder)
}

// processes is where the system describes its processes.
const processes = "/proc"

func serversIn(root, folder string) (pids []int, known bool, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		is, err := isServerIn(root, pid, folder)
		if errors.Is(err, fs.ErrPermission) {
			continue // a process of another user, whose folder this is not
		}
		if err != nil {
			return nil, false, err
		}
		if is {
			pids = append(pids, pid)
		}
	}
	return pids, true, nil
}

// hasEnded reports whether the error of reading about a process means that it has ended.
func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// isServerOf reports whether a process is a Postgres whose working folder is folder.
func isServerOf(pid int, folder string) (bool, error) { return isServerIn(processes, pid, folder) }

// isServerIn is isServerOf with the place of the descriptions. A process that is being ended has no program any more
// while it still holds the shared memory of its server. It is known by its folder, which it leaves last.
func isServerIn(root string, pid int, folder string) (bool, error) {
	proc := filepath.Join(root, strconv.Itoa(pid))
	executable, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil && !hasEnded(err) {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	// After an upgrade of the package, the link reads "postgres (deleted)".
	name := strings.TrimSuffix(filepath.Base(executable), " (deleted)")
	if err == nil && name != "postgres" && name != "postmaster" {
		return false, nil
	}
	where, err := os.Stat(filepath.Join(proc, "cwd"))
	if hasEnded(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	ours, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect process %d: %w", pid, err)
	}
	return os.SameFile(where, ours), nil
}
