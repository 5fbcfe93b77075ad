package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stateFolder is the variable with the folder of a user for the state of programs, and homeState where it is without.
const stateFolder = "XDG_STATE_HOME"

var homeState = filepath.Join(".local", "state")

// progressFile returns the path of the progress of an import without --state: next to what is imported, or below the
// state folder of the user if nothing can be written there, as next to a mail folder that is read-only. elsewhere is
// true for the latter.
func (i Import) progressFile(imported string) (path string, elsewhere bool, err error) {
	path = imported + ".progress"
	canWrite := i.canWrite
	if canWrite == nil {
		canWrite = isWritable
	}
	if canWrite(path) {
		return path, false, nil
	}
	base := os.Getenv(stateFolder)
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", false, fmt.Errorf("%s cannot be written, and there is no folder for it elsewhere: name a file with "+
				"--state: %w", path, err)
		}
		base = filepath.Join(home, homeState)
	}
	folder := filepath.Join(base, "annals", "import")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", false, fmt.Errorf("%s cannot be written, so the progress goes to %s, which fails too (--state names a "+
			"file): %w", path, folder, err)
	}
	absolute, err := filepath.Abs(imported)
	if err != nil {
		return "", false, fmt.Errorf("name the progress file: %w", err)
	}
	sum := sha256.Sum256([]byte(absolute))
	return filepath.Join(folder, filepath.Base(absolute)+"-"+hex.EncodeToString(sum[:8])+".progress"), true, nil
}

// isWritable reports whether a file can be written, or created if it does not exist. It changes nothing.
func isWritable(path string) bool {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		path = filepath.Dir(path)
	}
	return unix.Access(path, unix.W_OK) == nil
}

// ownState is progressFile, and shows the person where the file is if it is elsewhere.
func (i Import) ownState(imported string) (string, error) {
	path, elsewhere, err := i.progressFile(imported)
	if err == nil && elsewhere {
		i.notice("the folder of " + imported + " cannot be written: the progress is in " + path)
	}
	return path, err
}
