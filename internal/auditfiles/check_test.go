package auditfiles_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/auditfiles/auditfilestest"
)

// folder writes files with what makes them, and returns the folder.
func folder(t testing.TB, write func(to *auditfiles.Folder)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	to, err := auditfiles.NewFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(to)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func create(t testing.TB, to auditfilestest.Sink, name string, data []byte) {
	t.Helper()
	w, err := to.Create(name)
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func policy(t testing.TB, text []byte) proof.Policy {
	t.Helper()
	p, err := proof.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// check checks paths. It returns what was found, and the errors.
func check(t testing.TB, p proof.Policy, since []byte, paths ...string) (found []auditfiles.Found, err error) {
	t.Helper()
	failed := auditfiles.Check(p, paths, since, func(f auditfiles.Found) {
		found = append(found, f)
		if f.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.Name, f.Err))
		}
	})
	return found, errors.Join(failed, err)
}

// The folder with the tiles of a tree is right at each size.
func TestCheckTree_Sizes(t *testing.T) {
	l := auditfilestest.New(t, 1)
	l.Some(t, 600)
	for i := range 66_000 - 600 { // a third level
		l.AddEntry(t, fmt.Append(nil, i))
	}
	p := policy(t, auditfilestest.Policy(l.Verifiers))
	earlier := l.Checkpoint(t, 255, l.Keys)
	for _, size := range []int64{1, 2, 255, 256, 257, 512, 600, 65_536, 66_000} {
		dir := folder(t, func(to *auditfiles.Folder) {
			l.WriteTree(t, to, size, l.Checkpoint(t, size, l.Keys))
		})
		found, err := check(t, p, nil, dir)
		if err != nil || len(found) != 1 || found[0].Tree == nil || found[0].Tree.Size != size {
			t.Errorf("size %d: %+v, %v", size, found, err)
		}
		if _, err := check(t, p, earlier, filepath.Join(dir, auditfiles.CheckpointFile)); (err == nil) != (size >= 255) {
			t.Errorf("size %d, which must contain 255 leaves: %v", size, err)
		}
	}
}

// A tree that does not contain what an earlier checkpoint was signed over is named, and one that is missing too.
func TestCheck_Since(t *testing.T) {
	l, other := auditfilestest.New(t, 2), auditfilestest.New(t, 3)
	other.Origin = l.Origin
	l.Some(t, 20)
	other.Some(t, 20)
	p := policy(t, auditfilestest.Policy(l.Verifiers))
	dir := folder(t, func(to *auditfiles.Folder) { l.WriteTree(t, to, 20, l.Checkpoint(t, 20, l.Keys)) })
	for _, c := range []struct {
		name  string
		since []byte
		right bool
	}{
		{"an earlier one", l.Checkpoint(t, 7, l.Keys), true},
		{"of the fork", other.Checkpoint(t, 10, l.Keys), false},
		{"of the fork, of the same size", other.Checkpoint(t, 20, l.Keys), false},
		{"of another key", l.Checkpoint(t, 7, auditfilestest.New(t, 3).Keys), false},
	} {
		if _, err := check(t, p, c.since, dir); (err == nil) != c.right {
			t.Errorf("since %s: %v", c.name, err)
		}
	}
	l.Some(t, 10)
	if _, err := check(t, p, l.Checkpoint(t, 30, l.Keys), dir); err == nil {
		t.Error("the tree is cut")
	}
	file := filepath.Join(t.TempDir(), "a"+proof.Ending)
	if err := os.WriteFile(file, l.Prove(t, 1, 20, l.Checkpoint(t, 20, l.Keys), l.Extra(t, 1, false)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(t, p, l.Checkpoint(t, 7, l.Keys), file); err == nil {
		t.Error("no tree is there")
	}
}

// bundle writes a whole bundle of two keys, with an erased event.
func bundle(t testing.TB, l *auditfilestest.Log, to auditfilestest.Sink) {
	t.Helper()
	l.Some(t, 270)
	rotated := l.NewKey(t)
	key := l.Add(t, stream.Name(stream.Audit, l.Organization), 5, audit.KeyAdded{
		OrganizationID: l.Organization, Origin: l.Origin, Verifier: rotated,
	})
	record, err := l.Events[3].Record()
	if err != nil {
		t.Fatal(err)
	}
	keeper := l.Add(t, "deletion-1", 0, deletion.FactsKept{
		OrganizationID: l.Organization, Records: audit.KeptList{{EventID: l.Events[3].ID, Position: 3, Record: record}},
	})
	l.Some(t, 20)
	size := int64(len(l.Events))
	newest := l.Checkpoint(t, size, l.Keys[1:])
	create(t, to, auditfiles.PolicyFile, auditfilestest.Policy(l.Verifiers))
	l.WriteTree(t, to, size, newest)
	l.WriteLeaves(t, to, 2, 280, map[int64]bool{3: true})
	create(t, to, "keys/1"+proof.Ending, l.Prove(t, key, key+1, l.Checkpoint(t, key+1, l.Keys), l.Extra(t, key, true)))
	create(t, to, "erased/1"+proof.Ending, l.Prove(t, keeper, size, newest, l.Extra(t, keeper, true)))
}

// A bundle is right for who trusts its first key alone, as a folder and as a zip file.
func TestCheck_Bundle(t *testing.T) {
	l := auditfilestest.New(t, 4)
	name := filepath.Join(t.TempDir(), "bundle.zip")
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	bundle(t, l, z)
	if err := errors.Join(z.Close(), os.WriteFile(name, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, func(to *auditfiles.Folder) { bundle(t, auditfilestest.New(t, 4), to) })
	for _, path := range []string{name, dir} {
		found, err := check(t, policy(t, auditfilestest.Policy(l.Verifiers[:1])), nil, path)
		if err != nil || len(found) != 3 {
			t.Errorf("%s: %d files, %v", path, len(found), err)
		}
		for _, f := range found {
			if f.Tree != nil && (f.Tree.Listed != 278 || f.Tree.Erased != 1) {
				t.Errorf("%s: tree %+v", path, f.Tree)
			}
		}
	}
}

// Where an event that has left the log was is proved by the event that kept it, and nothing else passes for it.
func TestCheck_Kept(t *testing.T) {
	l := auditfilestest.New(t, 5)
	to := folder(t, func(to *auditfiles.Folder) { bundle(t, l, to) })
	size := int64(len(l.Events))
	checkpoint := l.Checkpoint(t, size, l.Keys[1:])
	record, err := l.Events[3].Record()
	if err != nil {
		t.Fatal(err)
	}
	kept := proof.Kept{
		Record: record[:], Stream: stream.Name(stream.DataPoint, uuid.Nil), Revision: 0, EventID: l.Events[3].ID,
	}
	p := policy(t, auditfilestest.Policy(l.Verifiers))
	for _, c := range []struct {
		name   string
		change func(*proof.Kept)
		right  bool
	}{
		{"as it was", func(*proof.Kept) {}, true},
		{"another revision", func(k *proof.Kept) { k.Revision++ }, false},
		{"another stream", func(k *proof.Kept) { k.Stream += "0" }, false},
		{"another event", func(k *proof.Kept) { k.EventID = uuid.New() }, false},
	} {
		said := kept
		c.change(&said)
		file := filepath.Join(t.TempDir(), "a"+proof.Ending)
		if err := os.WriteFile(file, l.Prove(t, 3, size, checkpoint, proof.Extra{Kept: &said}), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := check(t, p, nil, file, to)
		if last := found[len(found)-1]; (err == nil) != c.right || c.right && !strings.Contains(last.KeptBy, "erased/1") {
			t.Errorf("%s: %+v, %v", c.name, last, err)
		}
		if found, err = check(t, p, nil, file); err != nil || found[0].KeptBy != "" {
			t.Errorf("%s, alone: %+v, %v", c.name, found, err)
		}
	}
}

// Paths out of a folder or zip file are not followed.
func TestCheck_Escapes(t *testing.T) {
	l := auditfilestest.New(t, 6)
	l.Some(t, 3)
	p := policy(t, auditfilestest.Policy(l.Verifiers))
	file := l.Prove(t, 1, 3, l.Checkpoint(t, 3, l.Keys), l.Extra(t, 1, false))
	outside := filepath.Join(t.TempDir(), "outside"+proof.Ending)
	dir := t.TempDir()
	err := os.WriteFile(outside, file, 0o600)
	if err = errors.Join(err, os.Symlink(outside, filepath.Join(dir, "a"+proof.Ending))); err != nil {
		t.Fatal(err)
	}
	if found, err := check(t, p, nil, dir); err == nil {
		t.Errorf("a link out of the folder was followed: %+v", found)
	}
	to, err := auditfiles.NewFolder(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../out", "/etc/out", "a/../../out"} {
		if _, err := to.Create(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := auditfiles.NewFolder(dir); err == nil {
		t.Error("a folder with files was taken")
	}
}

// files are the files of a bundle in memory.
type files fstest.MapFS

type file struct{ *fstest.MapFile }

func (f file) Write(data []byte) (int, error) {
	f.Data = append(f.Data, data...)
	return len(data), nil
}

func (f files) Create(name string) (io.Writer, error) {
	f[name] = &fstest.MapFile{}
	return file{f[name]}, nil
}

// plain leaves out who signed: a damaged signature of one of two keys counts for nothing.
func plain(c proof.Checkpoint) proof.Checkpoint {
	c.Keys, c.Witnesses, c.Unknown = nil, nil, 0
	return c
}

// Of a bundle in which any file is changed, cut, dropped or swapped with another, nothing else is said than of the
// bundle as it was made.
func TestCheck_Damage(t *testing.T) {
	l := auditfilestest.New(t, 7)
	made := files{}
	bundle(t, l, made)
	names := slices.Sorted(maps.Keys(made))
	random := rand.New(rand.NewPCG(49, 2))
	want, err := said(made)
	if err != nil {
		t.Fatal(err)
	}
	rounds, passed := rounds(t), 0
	for range rounds {
		name, other := names[random.IntN(len(names))], names[random.IntN(len(names))]
		damaged := maps.Clone(made)
		switch random.IntN(10) {
		case 0:
			delete(damaged, name)
		case 1:
			damaged[name], damaged[other] = made[other], made[name]
		default:
			damaged[name] = &fstest.MapFile{Data: auditfilestest.Damage(random, made[name].Data)}
		}
		got, err := said(damaged)
		if err != nil {
			continue
		}
		passed++
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Fatalf("%s is damaged, and said is\n%s, not among\n%s", name, line, want)
			}
		}
	}
	t.Logf("%d of %d damages changed nothing that was said", passed, rounds)
}

// rounds is how many bundles are damaged: ANNALS_TEST_AUDIT, or few.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ANNALS_TEST_AUDIT")
	if text == "" && testing.Short() {
		return 200
	}
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// said is what is said of a bundle, by its own policy.
func said(bundle files) (list []string, err error) {
	file := bundle[auditfiles.PolicyFile]
	if file == nil {
		return nil, fs.ErrNotExist
	}
	p, err := proof.ParsePolicy(file.Data)
	if err != nil {
		return nil, err
	}
	failed := auditfiles.CheckFiles(p, fstest.MapFS(bundle), func(f auditfiles.Found) {
		if err = errors.Join(err, f.Err); f.Tree != nil {
			tree := *f.Tree
			tree.Checkpoint = plain(tree.Checkpoint)
			list = append(list, fmt.Sprintf("%+v", tree))
		} else if f.Proof != nil {
			s := *f.Proof
			fields := *s.Fields
			s.Fields, s.Checkpoint = nil, plain(s.Checkpoint)
			list = append(list, fmt.Sprintf("%+v %+v", s, fields))
		}
	})
	return list, errors.Join(err, failed)
}

// Files that are longer than any may be, or cut, are errors.
func TestCheck_Hostile(t *testing.T) {
	l := auditfilestest.New(t, 8)
	l.Some(t, 300)
	p := policy(t, auditfilestest.Policy(l.Verifiers))
	long := func(n int) *fstest.MapFile { return &fstest.MapFile{Data: make([]byte, n)} }
	for name, hostile := range map[string]*fstest.MapFile{
		auditfiles.CheckpointFile:       long(1<<20 + 1),
		auditfiles.TilePath(-1, 0, 256): long(256*(2+1<<16) + 1),
		auditfiles.TilePath(-1, 1, 44):  {Data: []byte{0xff, 0xff}},
		auditfiles.TilePath(0, 1, 44):   long(45 * 32),
		auditfiles.TilePath(1, 0, 1):    {},
		auditfiles.LeavesFile:           long(1<<16 + 1),
		"a/b" + proof.Ending:            long(proof.MaxFile + 1),
	} {
		made := files{}
		l.WriteTree(t, made, 300, l.Checkpoint(t, 300, l.Keys))
		made[name] = hostile
		wrong := 0
		if err := auditfiles.CheckFiles(p, fstest.MapFS(made), func(f auditfiles.Found) {
			if f.Err != nil {
				wrong++
			}
		}); err != nil || wrong == 0 {
			t.Errorf("%s: %d are wrong, %v", name, wrong, err)
		}
	}
}
