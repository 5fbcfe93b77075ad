package environment

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// longestPassword bounds what is read of a password file.
const longestPassword = 4096

// ReadPassword reads the one line of a file that other users cannot read.
func ReadPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	const others fs.FileMode = 0o007
	if info.Mode().Perm()&others != 0 {
		return "", fmt.Errorf("every user of this machine may open the password file %s (mode %#o): chmod 600 it", path,
			info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, longestPassword))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("the password file %s holds no password, or more than one line", path)
	}
	return password, nil
}
