package storage

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markFile records how far the log certainly reaches. The engine takes a truncated manifest for one
// whose end a crash tore off, and would continue with a log that is older or has a gap. A start
// compares the log with the mark.
const markFile = "MARK"

// mark records how far a log reaches. Everything in it was fsynced before it was written.
type mark struct {
	head     uint64
	manifest string
	size     int64
}

// mark returns the current mark for a head.
func (d *disk) mark(head uint64) mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	return mark{head: head, manifest: d.manifest, size: d.manifestSize}
}

// writeMark writes the mark for a head, if it changed.
func (s *store) writeMark(head uint64) error {
	m := s.disk.mark(head)
	if m == s.marked || m.manifest == "" {
		return nil
	}
	text := fmt.Appendf(nil, "%d %s %d\n", m.head, m.manifest, m.size)
	if err := writeAtomic(s.disk.FS, s.disk.dir, markFile, text); err != nil {
		return err
	}
	s.marked = m
	return nil
}

// readMark reads the mark of a folder. Without a file it is empty.
func readMark(fs vfs.FS, dir string) (m mark, err error) {
	text, err := readSmall(fs, fs.PathJoin(dir, markFile))
	if errors.Is(err, os.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, openError(dir, err)
	}
	if _, err := fmt.Sscanf(text, "%d %s %d\n", &m.head, &m.manifest, &m.size); err != nil {
		return mark{}, damagedError(dir, fmt.Errorf("the file %s cannot be read", markFile))
	}
	return m, nil
}

// checkManifest compares the manifest with the mark, before the engine opens it.
func (m mark) checkManifest(fs vfs.FS, dir string) error {
	if m.manifest == "" {
		return nil
	}
	info, err := fs.Stat(fs.PathJoin(dir, m.manifest))
	if errors.Is(err, os.ErrNotExist) { // a newer manifest has replaced it
		return nil
	}
	if err != nil {
		return openError(dir, err)
	}
	if info.Size() < m.size {
		return damagedError(dir, fmt.Errorf("its manifest %s was cut from %d bytes to %d", m.manifest, m.size, info.Size()))
	}
	return nil
}

// checkHead compares the end of the log with the mark.
func (m mark) checkHead(dir string, head uint64) error {
	if head < m.head {
		return damagedError(dir, fmt.Errorf("it ends at position %d, and had come to %d", head, m.head))
	}
	return nil
}

// isManifest reports whether a file is a manifest.
func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }
