package pg

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks a data folder for this process until the file is closed or the process ends.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the data folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("the data folder is in use by another annals (%s is locked)", path)
	} else if err != nil {
		err = fmt.Errorf("lock of the data folder: %w", err)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unlockFile releases the lock. Closing the file alone keeps it as long as a child that another
// goroutine is starting has inherited the file.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
