package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markFile says how far the log has come for certain. The engine takes a manifest that was cut for one whose end a crash tore off, and would
// go on with a log that is older, or has a gap: a start compares.
const markFile = "MARK"

// mark is how far a log has come: what is said here was fsynced before it was said.
type mark struct {
	head     uint64
	manifest string
	size     int64
}

// reached returns how far the manifest has come.
func (d *disk) reached(head uint64) mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	return mark{head: head, manifest: d.manifest, size: d.manifestSize}
}

// writeMark notes how far the log has come.
func (s *store) writeMark(head uint64) error {
	m := s.disk.reached(head)
	if m == s.marked || m.manifest == "" {
		return nil
	}
	if err := writeWhole(s.disk.FS, s.disk.dir, markFile, fmt.Appendf(nil, "%d %s %d\n", m.head, m.manifest, m.size)); err != nil {
		return err
	}
	s.marked = m
	return nil
}

// readMark reads how far the log had come; a folder without a mark says nothing.
func readMark(fs vfs.FS, dir string) (m mark, err error) {
	text, err := readSmall(fs, fs.PathJoin(dir, markFile))
	if errors.Is(err, os.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, unopened(dir, err)
	}
	if _, err := fmt.Sscanf(text, "%d %s %d\n", &m.head, &m.manifest, &m.size); err != nil {
		return mark{}, damaged(dir, fmt.Errorf("the file %s cannot be read", markFile))
	}
	return m, nil
}

// checkManifest compares the manifest with the mark, before the engine opens it.
func (m mark) checkManifest(fs vfs.FS, dir string) error {
	if m.manifest == "" {
		return nil
	}
	info, err := fs.Stat(fs.PathJoin(dir, m.manifest))
	if errors.Is(err, os.ErrNotExist) { // a newer one stands in its place
		return nil
	}
	if err != nil {
		return unopened(dir, err)
	}
	if info.Size() < m.size {
		return damaged(dir, fmt.Errorf("its manifest %s was cut from %d bytes to %d", m.manifest, m.size, info.Size()))
	}
	return nil
}

// checkHead compares the end of the log with the mark.
func (m mark) checkHead(dir string, head uint64) error {
	if head < m.head {
		return damaged(dir, fmt.Errorf("it ends at position %d, and had come to %d", head, m.head))
	}
	return nil
}

// isManifest says whether a file is a manifest.
func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }
