package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockName is the file of a log that pebble locks.
const lockName = "LOCK"

// Holder names the other process that has a log open, such as "annals serve, pid 4711". It returns "" if there is none,
// or none that this process can see. A process that has the log open itself must not call it: closing any descriptor
// of a file ends the POSIX locks that the process has on it.
func Holder(dir string) string {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // nothing is written
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK ||
		lock.Pid <= 0 { // 0 is a process of another namespace
		return ""
	}
	return program(int(lock.Pid))
}

// program names a process by its program and command, if this machine shows them.
func program(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	arguments := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if err != nil || arguments[0] == "" {
		return fmt.Sprintf("pid %d", pid)
	}
	name := filepath.Base(arguments[0])
	if len(arguments) > 1 && !strings.HasPrefix(arguments[1], "-") { // a flag may hold a password
		name += " " + arguments[1]
	}
	return fmt.Sprintf("%s, pid %d", name, pid)
}

// inUseError names the process that has a log open.
func inUseError(dir string, err error) error {
	text := "data folder " + dir + " is in use by another process"
	if errors.Is(err, syscall.EAGAIN) { // else it is this process
		if holder := Holder(dir); holder != "" {
			text += " (" + holder + ")"
		}
	}
	return errors.New(text)
}
