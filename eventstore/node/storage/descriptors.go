package storage

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// noDescriptor reports whether an error means that the process or the machine has no file
// descriptor left.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// spare is a file descriptor reserved for the log. The engine cannot continue without the next file
// of its write-ahead log; everything else in the process can wait for a descriptor.
type spare struct {
	mu   sync.Mutex
	file *os.File
}

// use calls open, which opens a file of the log, and frees the spare descriptor for it if there is
// no other.
func (s *spare) use(open func() error) error {
	s.refill()
	err := open()
	if !noDescriptor(err) || !s.release() {
		return err
	}
	defer s.refill()
	return open()
}

// release closes the spare descriptor, if there is one.
func (s *spare) release() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return false
	}
	_ = s.file.Close() // the null device
	s.file = nil
	return true
}

// refill opens the spare descriptor if there is none. If that fails, the next use tries again.
func (s *spare) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		s.file, _ = os.Open(os.DevNull)
	}
}

// tableFiles returns how many tables the engine keeps open: a quarter of the descriptors of the
// process, within bounds.
func tableFiles() int {
	const most, least = 1000, 32
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(max(limit.Cur/4, least), most))
}
