package auditfiles

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
)

// maxFiles bounds the files of all paths, tiles apart, maxKeys those of keys that were added, and maxKept those of
// events that have left the log.
const (
	maxFiles = 1 << 20
	maxKeys  = 1 << 8
	maxKept  = 1 << 16
)

// Found is what was checked of one file: a proof, or a checkpoint with its tree. Err is what is wrong with it.
type Found struct {
	Name string
	Err  error
	// Proof and Tree are nil unless it is one. KeptBy is the file that proves what Proof states of an event that has left
	// the log, "" for none.
	Proof  *proof.Statement
	Tree   *Tree
	KeptBy string
}

// source is a path that was opened.
type source struct {
	name  string
	files fs.FS
	// only is the one file of the path, "" for a folder or a zip file.
	only  string
	close func() error
}

func open(name string) (s source, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return s, err
	}
	dir, only := name, ""
	switch {
	case info.IsDir():
	case strings.HasSuffix(name, ".zip"):
		z, err := zip.OpenReader(name)
		if err != nil {
			return s, fmt.Errorf("%s: %w", name, err)
		}
		return source{name: name, files: z, close: z.Close}, nil
	case filepath.Base(name) == CheckpointFile:
		dir = filepath.Dir(name)
	default:
		dir, only = filepath.Dir(name), filepath.Base(name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return s, err
	}
	return source{dir, root.FS(), only, root.Close}, nil
}

// Check checks files, folders and zip files against a policy, and calls report for each proof and checkpoint. Since is
// a checkpoint that the tree of its origin must contain, nil for none.
func Check(policy proof.Policy, paths []string, since []byte, report func(Found)) (err error) {
	var sources []source
	for _, name := range paths {
		s, err := open(name)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		sources = append(sources, s)
	}
	return checkSources(policy, sources, since, report)
}

func checkSources(policy proof.Policy, sources []source, since []byte, report func(Found)) error {
	c := &check{report: report, sources: sources, kept: map[audit.Record]keeper{}}
	// Keys that were added may be proved by any of the files, and so may what was kept.
	if err := c.each(c.expect); err != nil {
		return err
	}
	c.policy = policy.Follow(c.keys)
	if since != nil {
		opened, err := c.policy.Open(since)
		if err != nil {
			return fmt.Errorf("the earlier checkpoint: %w", err)
		}
		c.since = &opened
	}
	if err := c.each(c.check); err != nil {
		return err
	}
	for _, found := range c.waiting {
		found.KeptBy, found.Err = c.confirm(*found.Proof)
		report(found)
	}
	if c.since != nil && !c.met {
		report(Found{Name: c.since.Origin, Err: errors.New("no tree of the origin of the earlier checkpoint is there")})
	}
	return nil
}

type check struct {
	policy  proof.Policy
	report  func(Found)
	sources []source
	keys    []proof.Proof
	since   *proof.Checkpoint
	met     bool
	// kept are the records of events that have left the log, with the file that proves where they were, and waiting the
	// proofs that state them.
	kept    map[audit.Record]keeper
	waiting []Found
}

type keeper struct {
	file, origin string
	proof.Kept
}

// each calls f for each proof and checkpoint.
func (c *check) each(f func(source, string) error) error {
	n := 0
	for _, s := range c.sources {
		if s.only != "" {
			if err := f(s, s.only); err != nil {
				return err
			}
			continue
		}
		err := fs.WalkDir(s.files, ".", func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "tile":
				return fs.SkipDir
			case n > maxFiles:
				return fmt.Errorf("%s has too many files", s.name)
			case !entry.IsDir() && (strings.HasSuffix(name, proof.Ending) || entry.Name() == CheckpointFile):
				n++
				return f(s, name)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func parse(s source, name string) (p proof.Proof, err error) {
	text, err := read(s.files, name, proof.MaxFile)
	if err != nil {
		return p, err
	}
	return proof.Parse(text)
}

// extra reads what a file has in its extra data, which nothing proves yet. ok is false for another file.
func extra(p proof.Proof) (e proof.Extra, f audit.Fields, ok bool) {
	if json.Unmarshal(p.Extra, &e) != nil {
		return e, f, false
	}
	if e.Kept != nil {
		return e, f, true
	}
	f, err := audit.ParseLeaf(e.Leaf)
	return e, f, err == nil
}

// expect takes the proofs of keys that were added, and notes of which records the files want to know the place. What
// cannot be read is reported by check.
func (c *check) expect(s source, name string) error {
	p, err := parse(s, name)
	if err != nil {
		return nil //nolint:nilerr // check reports it
	}
	e, f, ok := extra(p)
	switch {
	case !ok:
	case f.Type == audit.KeyAdded{}.EventType() && e.Data != nil && len(c.keys) < maxKeys:
		c.keys = append(c.keys, p)
	case e.Kept != nil && len(e.Kept.Record) == len(audit.Record{}) && len(c.kept) < maxKept:
		c.kept[audit.Record(e.Kept.Record)] = keeper{}
	}
	return nil
}

// check checks a file, and reports it.
func (c *check) check(s source, name string) error {
	found := Found{Name: s.nameOf(name)}
	if path.Base(name) == CheckpointFile {
		found.Name = s.nameOf(path.Dir(name))
		found.Tree, found.Err = c.tree(s, path.Dir(name))
	} else if p, err := parse(s, name); err != nil {
		found.Err = err
	} else if said, err := p.Verify(c.policyOf(p)); err != nil {
		found.Err = err
	} else {
		found.Proof = &said
		if said.Kept != nil && len(c.waiting) < maxKept {
			c.waiting = append(c.waiting, found)
			return nil
		}
		found.Err = c.keepers(found.Name, said)
	}
	c.report(found)
	return nil
}

// keepers takes the places of the records that the files want to know, if a proof is of an event that kept them.
func (c *check) keepers(file string, said proof.Statement) (err error) {
	keep := func(of string, from int64, list audit.KeptList) {
		for i, k := range list {
			if _, wanted := c.kept[k.Record]; wanted {
				c.kept[k.Record] = keeper{file, said.Origin, proof.Kept{
					Record: k.Record[:], Stream: of, Revision: from + int64(i), EventID: k.EventID,
				}}
			}
		}
	}
	if said.Data == nil || len(c.kept) == 0 {
		return nil
	}
	var records audit.RecordsKept
	var facts deletion.FactsKept
	switch said.Fields.Type {
	case records.EventType():
		err = json.Unmarshal(said.Data, &records)
		keep(records.Stream, records.From, records.Records)
	case facts.EventType():
		err = json.Unmarshal(said.Data, &facts)
		keep(stream.Name(stream.DataPoint, facts.DataPoint), facts.From, facts.Records)
		first := facts.MemoriesTo - int64(len(facts.MemoryRecords))
		keep(stream.Name(stream.Memory, facts.DataPoint), first, facts.MemoryRecords)
	}
	return err
}

// policyOf is the policy that a proof must keep. That of a key that was added needs no witness.
func (c *check) policyOf(p proof.Proof) proof.Policy {
	if e, f, ok := extra(p); ok && e.Data != nil && f.Type == (audit.KeyAdded{}).EventType() {
		return c.policy.LogAlone()
	}
	return c.policy
}

func (c *check) tree(s source, dir string) (*Tree, error) {
	files, err := fs.Sub(s.files, dir)
	if err != nil {
		return nil, err
	}
	tree, err := CheckTree(files, c.policy, c.since)
	if err != nil {
		return nil, err
	}
	c.met = c.met || c.since != nil && c.since.Origin == tree.Origin
	return &tree, nil
}

// confirm compares what a file states of an event that has left the log with what another file proves of it.
func (c *check) confirm(said proof.Statement) (file string, err error) {
	k := c.kept[said.Record]
	if k.file != "" && (k.origin != said.Origin || k.Stream != said.Kept.Stream || k.Revision != said.Kept.Revision ||
		k.EventID != said.Kept.EventID) {
		return "", fmt.Errorf("%s proves another place of the event", k.file)
	}
	return k.file, nil
}

// nameOf is a file as a person finds it.
func (s source) nameOf(name string) string { return path.Join(filepath.ToSlash(s.name), name) }
