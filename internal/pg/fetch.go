package pg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/xi2/xz"
)

// fetchable maps each major version to the version that is fetched. A new database folder uses the
// newest.
var fetchable = map[int]string{14: "14.18.0", 15: "15.13.0", 16: "16.9.0", 17: "17.5.0", 18: "18.3.0"}

const (
	// published is the repository that has the programs, built for all platforms by zonkyio/embedded-postgres-binaries.
	published       = "https://repo1.maven.org/maven2"
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
	want := cmp.Or(s.cfg.checksum, checksums[on][version])
	if want == "" {
		return "", fmt.Errorf("postgres %s cannot be fetched: not published for %s", version, on)
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("cache of binaries: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	archive, err := download(ctx, cmp.Or(s.cfg.repository, published), on, version)
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

// download fetches the archive of a version for a platform. It is published in a jar, which is a ZIP file.
func download(ctx context.Context, repository, on, version string) (archive []byte, err error) {
	name := "embedded-postgres-binaries-" + on
	url := repository + "/io/zonky/test/postgres/" + name + "/" + version + "/" + name + "-" + version + ".jar"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	jar, err := readArchive(response.Body)
	if err != nil {
		return nil, err
	}
	files, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	for _, f := range files.File {
		if path.Ext(f.Name) != ".txz" {
			continue
		}
		content, err := f.Open()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", url, err)
		}
		archive, err = readArchive(content)
		return archive, errors.Join(err, content.Close())
	}
	return nil, fmt.Errorf("%s has no archive of programs", url)
}

func readArchive(from io.Reader) ([]byte, error) {
	archive, err := io.ReadAll(io.LimitReader(from, maxArchive+1))
	if err == nil && len(archive) > maxArchive {
		err = fmt.Errorf("the archive has more than %d bytes", maxArchive)
	}
	return archive, err
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
