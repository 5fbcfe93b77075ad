// Package blevetest reads the files of a recall index as an attacker with access to the disk would.
package blevetest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	zap "github.com/blevesearch/zapx/v17"

	"github.com/annals-project/annals/projections/recallindex/bleve"
)

// Holding names the files under a folder that contain a lower-case word: in their bytes or, for
// segments, in the terms of any field. A segment encodes its terms, so its bytes do not show them.
func Holding(t testing.TB, folder, word string) []string {
	t.Helper()
	bleve.RegisterPacking()
	var files []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // removed after it was listed
		}
		if err != nil {
			return err
		}
		found := bytes.Contains(bytes.ToLower(data), []byte(word))
		for !found && filepath.Ext(path) == ".zap" {
			found, err = inTerms(path, word)
			if err == nil {
				break
			}
			// A segment that is being written cannot be opened: try again once it has grown.
			before := len(data)
			if data, err = os.ReadFile(path); os.IsNotExist(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if len(data) == before && before > 0 {
				return errWhole
			}
			found = bytes.Contains(bytes.ToLower(data), []byte(word))
		}
		if found {
			files = append(files, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// errWhole reports a segment that cannot be opened although it is written.
var errWhole = errors.New("a segment is damaged")

// inTerms searches the terms of all fields of a segment, also those of deleted documents.
func inTerms(path, word string) (found bool, err error) {
	s, err := new(zap.ZapPlugin).Open(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	for _, field := range s.Fields() {
		dict, err := s.Dictionary(field)
		if err != nil {
			return false, err
		}
		terms := dict.AutomatonIterator(nil, nil, nil)
		for {
			entry, err := terms.Next()
			if err != nil {
				return false, err
			}
			if entry == nil {
				break
			}
			if strings.Contains(strings.ToLower(entry.Term), word) {
				return true, nil
			}
		}
	}
	return false, nil
}
