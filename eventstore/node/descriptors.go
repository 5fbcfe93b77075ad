package node

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// noDescriptor reports whether an error is that the process or the machine has no file descriptor left.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// spare is a file descriptor that is kept for the log: the engine cannot go on without the next file of its write-ahead log,
// and everything else in the process can wait for a descriptor.
type spare struct {
	mu   sync.Mutex
	file *os.File
}

// use runs a function that opens a file of the log, and gives it the spare descriptor if there is no other.
func (s *spare) use(open func() error) error {
	s.keep()
	err := open()
	if !noDescriptor(err) || !s.give() {
		return err
	}
	defer s.keep()
	return open()
}

// give closes the spare descriptor, if there is one.
func (s *spare) give() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return false
	}
	_ = s.file.Close() // the null device
	s.file = nil
	return true
}

// keep opens the spare descriptor if there is none. Without one the next use tries again.
func (s *spare) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		s.file, _ = os.Open(os.DevNull)
	}
}

// tableFiles is how many tables the engine keeps open: a quarter of what the process may open, at most the engine's default.
func tableFiles() int {
	const most, least = 1000, 32
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(max(limit.Cur/4, least), most))
}
