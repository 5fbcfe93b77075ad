package runtest

import (
	"os"

	"golang.org/x/sys/unix"
)

// MemoryFolder returns where tests write much: in memory if the system has much of it for files, since a database is
// hundreds of files, which a disk creates and removes slowly; otherwise where temporary files are.
func MemoryFolder() string {
	const inMemory, enough = "/dev/shm", 4 << 30
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Statfs(inMemory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < enough ||
		unix.Access(inMemory, unix.W_OK) != nil {
		return os.TempDir()
	}
	return inMemory
}
