package minilm

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// tinyRelease is a release whose files are small ones that load.
func tinyRelease() (want release, model, tokenizer []byte) {
	model, tokenizer = newTinyONNX(Dims, 64, 1).encode(), tokenizerJSON(vocabulary)
	want = published()
	for f, data := range map[*modelFile][]byte{&want.model: model, &want.tokenizer: tokenizer} {
		sum := sha256.Sum256(data)
		f.size, f.sha256 = int64(len(data)), hex.EncodeToString(sum[:])
	}
	return want, model, tokenizer
}

type entry struct {
	name string
	data []byte
}

// writeJar returns the path of a zip with entries.
func writeJar(t *testing.T, entries ...entry) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		w, err := z.Create(e.name)
		runtest.Must(t, err)
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Must(t, z.Close())
	return writeFile(t, t.TempDir(), "model.jar", b.Bytes())
}

func writeFile(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	runtest.Must(t, os.WriteFile(path, data, 0o600))
	return path
}

func writeFolder(t *testing.T, entries ...entry) string {
	t.Helper()
	dir := t.TempDir()
	for _, e := range entries {
		writeFile(t, dir, e.name, e.data)
	}
	return dir
}

func TestInstall_ThenOpen(t *testing.T) {
	want, model, tokenizer := tinyRelease()
	packed := []entry{{"META-INF/MANIFEST.MF", nil}, {want.tokenizer.packed, tokenizer}, {want.model.packed, model}}
	for name, source := range map[string]string{
		"jar":                    writeJar(t, packed...),
		"folder, names of a jar": writeFolder(t, packed[1:]...),
		"folder, own names":      writeFolder(t, entry{"model.onnx", model}, entry{"tokenizer.json", tokenizer}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "model")
			if _, err := open(dir, want); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("open before install: %v", err)
			}
			for range 2 { // the second time over the first
				runtest.Must(t, install(t.Context(), source, dir, want))
			}
			if got := names(t, dir); !slices.Equal(got, []string{"model.onnx", "tokenizer.json"}) {
				t.Errorf("installed %q", got)
			}
			m, err := open(dir, want)
			runtest.Must(t, err)
			direct, err := openSource(t.Context(), source, want)
			runtest.Must(t, err)
			for _, m := range []*Model{m, direct} {
				if m.Name() != "all-MiniLM-L6-v2-q@"+want.model.sha256[:12] || len(mustEmbed(t, m, "run")) != Dims {
					t.Errorf("name %q", m.Name())
				}
			}
		})
	}
}

func TestInstall_HostileSource(t *testing.T) {
	want, model, tokenizer := tinyRelease()
	other := bytes.Clone(model)
	other[len(other)/2] ^= 1
	mod, tok := want.model.packed, want.tokenizer.packed
	jar := writeJar(t, entry{tok, tokenizer}, entry{mod, model})
	content, err := os.ReadFile(jar)
	runtest.Must(t, err)
	damaged := bytes.Clone(content)
	damaged[len(damaged)/2] ^= 1
	// The directory of the zip declares the expected size of an entry that is larger.
	large := bytes.Repeat([]byte("a"), 1<<20)
	lying := lieAboutSize(t, writeJar(t, entry{tok, tokenizer}, entry{mod, large}), mod, want.model.size)
	write := func(name string, data []byte) string { return writeFile(t, t.TempDir(), name, data) }
	folder := writeFolder(t, entry{tok, tokenizer})
	runtest.Must(t, os.Mkdir(filepath.Join(folder, "model.onnx"), 0o700))
	for name, test := range map[string]struct {
		source string
		is     error
		text   string
	}{
		"missing source":         {filepath.Join(t.TempDir(), "none"), fs.ErrNotExist, ""},
		"device":                 {os.DevNull, nil, "neither a folder nor a jar"},
		"not a zip":              {write("a.jar", []byte("hello")), zip.ErrFormat, ""},
		"empty file":             {write("a.jar", nil), zip.ErrFormat, ""},
		"cut zip":                {write("a.jar", content[:len(content)-30]), zip.ErrFormat, ""},
		"damaged zip":            {write("a.jar", damaged), nil, ""},
		"zip without model":      {writeJar(t, entry{tok, tokenizer}), fs.ErrNotExist, mod},
		"zip without tokenizer":  {writeJar(t, entry{mod, model}), fs.ErrNotExist, tok},
		"model in a subfolder":   {writeJar(t, entry{tok, tokenizer}, entry{"a/" + mod, model}), fs.ErrNotExist, mod},
		"bomb":                   {writeJar(t, entry{tok, tokenizer}, entry{mod, make([]byte, 10<<20)}), nil, "10485760 bytes"},
		"bomb of declared size":  {lying, nil, ""},
		"cut entry":              {writeJar(t, entry{tok, tokenizer}, entry{mod, model[:100]}), nil, "100 bytes"},
		"wrong digest in zip":    {writeJar(t, entry{tok, tokenizer}, entry{mod, other}), nil, "SHA-256"},
		"wrong digest in folder": {writeFolder(t, entry{tok, tokenizer}, entry{mod, other}), nil, "SHA-256"},
		"cut file":               {writeFolder(t, entry{tok, tokenizer}, entry{mod, model[1:]}), nil, "bytes"},
		"own name comes first":   {writeFolder(t, entry{tok, tokenizer}, entry{mod, model}, entry{"model.onnx", other}), nil, "SHA-256"},
		"empty folder":           {t.TempDir(), fs.ErrNotExist, ""},
		"folder without model":   {writeFolder(t, entry{tok, tokenizer}), fs.ErrNotExist, mod},
		"folder as a file":       {folder, nil, "regular"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			err := install(t.Context(), test.source, filepath.Join(parent, "model"), want)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want %v with %q", err, test.is, test.text)
			}
			if left := names(t, parent); len(left) > 0 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// lieAboutSize changes the uncompressed size of an entry in the directory of a zip.
func lieAboutSize(t *testing.T, jar, name string, size int64) string {
	t.Helper()
	data, err := os.ReadFile(jar)
	runtest.Must(t, err)
	// A record is 46 bytes before the name; the uncompressed size is at 24.
	at := bytes.LastIndex(data, []byte(name)) - 46
	for i := range 4 {
		data[at+24+i] = byte(size >> (8 * i))
	}
	return writeFile(t, t.TempDir(), "lying.jar", data)
}

func TestInstall_DestinationFails(t *testing.T) {
	want, model, tokenizer := tinyRelease()
	source := writeFolder(t, entry{want.model.name, model}, entry{want.tokenizer.name, tokenizer})

	t.Run("parent is a file", func(t *testing.T) {
		parent := t.TempDir()
		file := writeFile(t, parent, "file", []byte("text"))
		if err := install(t.Context(), source, filepath.Join(file, "model"), want); err == nil {
			t.Error("installed")
		}
		if got := names(t, parent); !slices.Equal(got, []string{"file"}) {
			t.Errorf("left %q", got)
		}
	})
	t.Run("model cannot be replaced", func(t *testing.T) {
		dir := t.TempDir()
		runtest.Must(t, os.MkdirAll(filepath.Join(dir, "model.onnx", "inside"), 0o700))
		if err := install(t.Context(), source, dir, want); err == nil {
			t.Error("installed")
		}
		if got := names(t, dir); !slices.Equal(got, []string{"model.onnx"}) {
			t.Errorf("left %q", got)
		}
	})
	t.Run("read-only folder", func(t *testing.T) {
		dir := t.TempDir()
		runtest.Must(t, os.Chmod(dir, 0o500))
		if f, err := os.CreateTemp(dir, ""); err == nil {
			_ = f.Close()
			t.Skip("this user writes to read-only folders")
		}
		if err := install(t.Context(), source, dir, want); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		parent := t.TempDir()
		if err := install(ctx, source, filepath.Join(parent, "model"), want); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if got := names(t, parent); len(got) > 0 {
			t.Errorf("left %q", got)
		}
	})
	t.Run("canceled before writing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		dir := filepath.Join(t.TempDir(), "model")
		if err := writeInstalled(ctx, dir, want, model, tokenizer); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder was left: %v", err)
		}
	})
}

func TestOpen_ChangedFile(t *testing.T) {
	want, model, tokenizer := tinyRelease()
	for name, entries := range map[string][]entry{
		"changed model":     {{"model.onnx", append(model[:len(model)-1:len(model)-1], 'x')}, {"tokenizer.json", tokenizer}},
		"longer model":      {{"model.onnx", append(model[:len(model):len(model)], 0)}, {"tokenizer.json", tokenizer}},
		"changed tokenizer": {{"model.onnx", model}, {"tokenizer.json", bytes.ToUpper(tokenizer)}},
	} {
		_, err := open(writeFolder(t, entries...), want)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := open(writeFolder(t, entry{"model.onnx", model}), want); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing tokenizer: error %v", err)
	}
	if _, err := OpenSource(t.Context(), filepath.Join(t.TempDir(), "model.jar")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing source: error %v", err)
	}
	changed := writeJar(t, entry{want.tokenizer.packed, tokenizer}, entry{want.model.packed, bytes.ToUpper(model)})
	if _, err := openSource(t.Context(), changed, want); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("changed jar: error %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folder: error %v", err)
	}
}

func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	runtest.Must(t, err)
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}
