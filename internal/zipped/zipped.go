// Package zipped packs files that are in memory.
package zipped

import (
	"archive/zip"
	"bytes"
	"fmt"
)

// File is a file with its name.
type File struct {
	Name string
	Data []byte
}

// Size is how many bytes files have together.
func Size(files []File) (n int64) {
	for _, f := range files {
		n += int64(len(f.Data))
	}
	return n
}

// Pack packs files without times, so that the same files are the same bytes.
func Pack(files []File) ([]byte, error) {
	var b bytes.Buffer
	to := zip.NewWriter(&b)
	for _, f := range files {
		w, err := to.Create(f.Name)
		if err == nil {
			_, err = w.Write(f.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.Name, err)
		}
	}
	if err := to.Close(); err != nil {
		return nil, fmt.Errorf("pack files: %w", err)
	}
	return b.Bytes(), nil
}
