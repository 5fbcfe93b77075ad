// Package memory sets how much memory the collector of garbage aims at, and keeps the memory out of core files.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent lets the heap grow to three times its live part between collections. Most allocations
	// end with their request or page, so the live part is small. GOGC in the environment wins.
	gcPercent = 200
	// most is the heap size in bytes above which the collector runs more often, so that the garbage of
	// a few big answers does not fill the machine. The live part may exceed it. GOMEMLIMIT in the
	// environment wins.
	most = 640 << 20
	// share is the part of the memory, in percent, that the heap may take. The private Postgres, the
	// index and the cache of files need the rest.
	share = 40
)

// Limit sets the collector, unless the environment does, and returns the heap size that it aims at, 0 if the
// environment sets it.
func Limit(getenv func(string) string) (aim int64) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if getenv("GOMEMLIMIT") == "" {
		aim = Aim(os.DirFS("/"))
		debug.SetMemoryLimit(aim)
	}
	return aim
}

// Aim returns the heap size for the memory that a process may use: that of its cgroup or of the machine, as the files
// of the system state it. Without such files, as on macOS, it is the most.
func Aim(system fs.FS) int64 {
	available := int64(math.MaxInt64)
	for _, limit := range append(cgroupLimits(system), machine(system)) {
		if limit > 0 {
			available = min(available, limit)
		}
	}
	if available > most*100/share {
		return most
	}
	return available * share / 100
}

// machine reads the memory of the machine, 0 if it is not known.
func machine(system fs.FS) int64 {
	text, err := fs.ReadFile(system, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil || kib > math.MaxInt64>>10 {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// cgroupLimits reads the limits of the cgroup of the process and of those above it, of version 2 or 1. In a container
// the path in /proc may be that of the host, whose own cgroup is then the root of the tree that the container sees.
func cgroupLimits(system fs.FS) (limits []int64) {
	text, err := fs.ReadFile(system, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			root, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[0] != "0" {
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			limits = append(limits, number(system, path.Join(root, group, file)))
			if group == "/" {
				break
			}
		}
	}
	return limits
}

// number reads a file that holds one number, 0 if it is none, as "max" is.
func number(system fs.FS, name string) int64 {
	text, err := fs.ReadFile(system, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
