package pg

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/xi2/xz"

	"github.com/annals-project/annals/internal/panics"
)

// fetchable maps each major version to the version that is fetched. A new database folder uses the
// newest.
var fetchable = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14,
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const (
	newestFetchable = 18
	maxArchive      = 64 << 20  // bytes of an archive
	maxPrograms     = 512 << 20 // bytes of what it unpacks to
	maxProgramFiles = 10_000
)

// cachedFolders returns the folders of the versions that may have been fetched before.
func cachedFolders(cache string) []string {
	var dirs []string
	for major := range fetchable {
		dirs = append(dirs, filepath.Join(cache, strconv.Itoa(major), "bin"))
	}
	return dirs
}

// platform returns the name under which archives for this machine are published.
func platform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	name := runtime.GOOS + "-" + arch
	if _, err := os.Stat("/etc/alpine-release"); err == nil && runtime.GOOS == "linux" {
		name += "-alpine"
	}
	return name
}

// fetch downloads the programs of a major version, 0 for the newest, into the cache, and returns their
// folder. It checks the archive against the pinned checksum before it unpacks it, and runs nothing.
func (s *Server) fetch(ctx context.Context, cache string, major int) (folder string, err error) {
	major = cmp.Or(major, newestFetchable)
	version, known := fetchable[major]
	if !known {
		return "", fmt.Errorf("postgres %d cannot be fetched: unknown version", major)
	}
	on := platform()
	want := cmp.Or(s.cfg.checksum, checksums[on][string(version)])
	if want == "" {
		return "", fmt.Errorf("postgres %s cannot be fetched: not published for %s", version, on)
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("cache of binaries: %w", err)
	}
	archive, ended, err := download(ctx, work, version, s.cfg.repository)
	defer func() {
		select {
		case <-ended:
			err = errors.Join(err, os.RemoveAll(work))
		default: // the download cannot be stopped: remove its folder once it ends
			panics.Go(context.WithoutCancel(ctx), s.logger, "removal of a download panicked", func() {
				<-ended
				_ = os.RemoveAll(work)
			})
		}
	}()
	if err != nil {
		return "", fmt.Errorf("fetch postgres %s: %w", version, err)
	}
	if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != want {
		return "", fmt.Errorf("fetch postgres %s: the archive is not the one that this program trusts and is not used: "+
			"its SHA-256 is %x, want %s", version, sum, want)
	}
	programs := filepath.Join(work, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return "", fmt.Errorf("cache of binaries: %w", err)
	}
	if err := unpack(archive, programs); err != nil {
		return "", fmt.Errorf("unpack postgres %s: %w", version, err)
	}
	final := filepath.Join(cache, strconv.Itoa(major))
	if err := errors.Join(os.Chmod(programs, 0o755), os.RemoveAll(final), os.Rename(programs, final)); err != nil {
		return "", fmt.Errorf("cache of binaries: %w", err)
	}
	return filepath.Join(final, "bin"), nil
}

// download fetches an archive into a folder and reads it. The folder is in use until ended is closed,
// also after an error.
//
// The library knows where the archives are published, but it fetches one only as the first step of
// starting a server. Its folder for programs is below a dangling link, so it fails after the
// download: it unpacks and runs nothing. It takes no context.
func download(
	ctx context.Context, work string, version embeddedpostgres.PostgresVersion, repository string,
) (archive []byte, ended <-chan struct{}, err error) {
	done := make(chan struct{})
	nowhere := filepath.Join(work, "nowhere")
	if err := os.Symlink(filepath.Join(work, "missing"), nowhere); err != nil {
		close(done)
		return nil, done, err
	}
	config := embeddedpostgres.DefaultConfig().Version(version).Port(0).CachePath(work).Logger(io.Discard).
		RuntimePath(filepath.Join(work, "runtime")).BinariesPath(filepath.Join(nowhere, "programs"))
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	var stopped error
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				stopped = fmt.Errorf("panic: %v", v)
			}
		}()
		stopped = embeddedpostgres.NewDatabase(config).Start()
	}()
	select {
	case <-ctx.Done():
		return nil, done, context.Cause(ctx)
	case <-done:
	}
	found, err := filepath.Glob(filepath.Join(work, "*.txz"))
	if err != nil || len(found) != 1 {
		return nil, done, errors.Join(stopped, err)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		return nil, done, err
	}
	if info.Size() > maxArchive {
		return nil, done, fmt.Errorf("the archive has more than %d bytes", maxArchive)
	}
	archive, err = os.ReadFile(found[0])
	return archive, done, err
}

// unpack writes the programs of an archive, a compressed tar, below a folder.
func unpack(archive []byte, folder string) error {
	plain, err := xz.NewReader(bytes.NewReader(archive), 0)
	if err != nil {
		return err
	}
	return unpackTar(tar.NewReader(io.LimitReader(plain, maxPrograms)), folder)
}

// unpackTar writes nothing outside the folder, and only the owner can change what it writes.
func unpackTar(files *tar.Reader, folder string) (err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for range maxProgramFiles {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(path.Dir(path.Clean(header.Name)), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(path.Clean(header.Name), 0o755)
		case tar.TypeReg:
			err = unpackFile(root, header, files)
		case tar.TypeSymlink:
			if path.IsAbs(header.Linkname) || !filepath.IsLocal(path.Join(path.Dir(header.Name), header.Linkname)) {
				return fmt.Errorf("link %s leads out of the folder", header.Name)
			}
			err = root.Symlink(header.Linkname, header.Name)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("more than %d files", maxProgramFiles)
}

func unpackFile(root *os.Root, header *tar.Header, content io.Reader) (err error) {
	mode := fs.FileMode(0o644)
	if header.Mode&0o100 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	// Set the mode explicitly: the umask could hide the programs from the user that runs them.
	return errors.Join(err, f.Chmod(mode), f.Close())
}
