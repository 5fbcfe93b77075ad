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
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/xi2/xz"
)

// OldestMajor is the oldest major version that the projections' SQL runs on.
const OldestMajor = 14

// installation is a folder with the programs of one Postgres.
type installation struct {
	dir     string
	version string // for example "15.14"
	major   int
}

func (i installation) program(name string) string { return filepath.Join(i.dir, name) }

// binaries finds the programs for a database folder of a major version, 0 for a new folder: those of
// the machine, else fetched ones. It runs programs as the server's user only.
func (s *Server) binaries(ctx context.Context, major int, dataDir, home string, user osUser) (installation, error) {
	dirs := s.cfg.searchPath
	if dirs == nil {
		dirs = machineFolders()
	}
	fits := func(i installation) bool { return i.major == major || major == 0 && i.major >= OldestMajor }
	found := installations(ctx, user, dirs)
	if n := slices.IndexFunc(found, fits); n >= 0 {
		return found[n], nil
	}
	if major == 0 && !hasLoader(s.cfg.loaders) {
		return installation{}, errors.New("the private Postgres cannot run on this system, which has no C library, " +
			"like an image from scratch: name a server with ANNALS_POSTGRES, such as postgres://user@host/annals")
	}
	cache, err := s.cacheFolder(ctx, dataDir, home, user)
	if err == nil {
		cached := installations(ctx, user, cachedFolders(cache))
		if n := slices.IndexFunc(cached, fits); n >= 0 {
			return cached[n], nil
		}
		s.logger.InfoContext(ctx, "fetch postgres: this machine has no suitable version", "major", major)
		var fetched installation
		if fetched, err = s.fetchPrograms(ctx, cache, major, user); err == nil {
			return fetched, nil
		}
		found = append(found, cached...)
	}
	if major == 0 {
		return installation{}, fmt.Errorf("no Postgres %d or newer on this machine (searched PATH and /usr/lib/postgresql), "+
			"and none could be fetched: install one, or name a server: %w", OldestMajor, err)
	}
	var have []string
	for _, i := range found {
		have = append(have, i.version)
	}
	return installation{}, fmt.Errorf("%s was made by Postgres %d, this machine has %s: install Postgres %d, "+
		"or move the folder away to build it again from the log (fetch failed: %w)",
		home, major, cmp.Or(strings.Join(have, ", "), "none"), major, err)
}

// Installed returns the version of the Postgres that would serve a data folder as the private server. It looks only at
// the programs of this machine: a start can fetch others.
func Installed(ctx context.Context, dataDir string) (version string, err error) {
	major, err := cluster{home: filepath.Join(dataDir, "postgres")}.major()
	if err != nil {
		return "", err
	}
	self := osUser{apply: func(*syscall.SysProcAttr) {}}
	for _, i := range installations(ctx, self, machineFolders()) {
		if i.major == major || major == 0 && i.major >= OldestMajor {
			return i.version, nil
		}
	}
	if major == 0 {
		return "", fmt.Errorf("this machine has no Postgres %d or newer for the private server", OldestMajor)
	}
	return "", fmt.Errorf("this machine has no Postgres %d, which made the private database", major)
}

// loaders are the programs of the C libraries that start Postgres on Linux, by architecture: without
// one of them no Postgres runs, fetched or not.
var loaders = map[string][]string{
	"amd64": {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"},
	"arm64": {"/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"},
}

// hasLoader reports whether one of the files exists; of nil, those of this machine. It reports true for
// a system whose loaders are not known.
func hasLoader(files []string) bool {
	if files == nil && runtime.GOOS == "linux" {
		files = loaders[runtime.GOARCH]
	}
	return len(files) == 0 || slices.ContainsFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// fetchPrograms fetches the programs of a major version and runs them to read their version.
func (s *Server) fetchPrograms(ctx context.Context, cache string, major int, user osUser) (installation, error) {
	folder, err := s.fetch(ctx, cache, major)
	if err != nil {
		return installation{}, err
	}
	return inspect(ctx, user, folder)
}

// machineFolders returns the folders that may contain Postgres on this machine; some do not exist.
func machineFolders() []string {
	var dirs []string
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// Resolve links, since the other programs are next to the target.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/lib/postgresql*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*",
		"/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		// Glob fails only on a malformed pattern, and these are constant.
		matches, _ := filepath.Glob(pattern)
		dirs = append(dirs, matches...)
	}
	return dirs
}

// installations inspects folders and returns those with a working Postgres, newest first.
func installations(ctx context.Context, user osUser, dirs []string) []installation {
	var found []installation
	seen := map[string]bool{}
	for _, dir := range dirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if i, err := inspect(ctx, user, dir); err == nil {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b installation) int { return cmp.Compare(b.major, a.major) })
	return found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect reads the version of the programs in a folder, as the server's user. It fails if one of
// the two programs is missing.
func inspect(ctx context.Context, user osUser, dir string) (installation, error) {
	i := installation{dir: dir}
	if _, err := exec.LookPath(i.program("initdb")); err != nil {
		return i, fmt.Errorf("inspect %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.program("postgres"), "--version")
	user.runAs(cmd)
	out, err := cmd.Output()
	if err != nil {
		return i, fmt.Errorf("inspect %s: %w", dir, err)
	}
	match := versionPattern.FindStringSubmatch(string(out))
	if match == nil {
		return i, fmt.Errorf("inspect %s: no version in %q", dir, out)
	}
	i.version = match[1]
	if i.major, err = strconv.Atoi(match[2]); err != nil {
		return i, fmt.Errorf("inspect %s: %w", dir, err)
	}
	return i, nil
}

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

// cacheFolder returns the folder of fetched programs. If annals runs as root, only root can change or
// replace it: it is in the data folder, or below /var/lib if the server's user cannot read the data
// folder or other users can write to it.
func (s *Server) cacheFolder(ctx context.Context, dataDir, home string, user osUser) (string, error) {
	if os.Geteuid() != 0 {
		cache := filepath.Join(home, "cache")
		return cache, os.MkdirAll(cache, 0o755)
	}
	base := cmp.Or(s.cfg.fallbackBase, "/var/lib")
	var errs []error
	for _, folder := range []string{
		filepath.Join(dataDir, "postgres-programs"), filepath.Join(base, "annals-postgres-programs"),
	} {
		err := makeCache(folder)
		if err == nil {
			err = user.canRead(ctx, folder)
		}
		if err == nil {
			return folder, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no folder for fetched programs: %w", errors.Join(errs...))
}

// makeCache makes a folder that only root can change.
func makeCache(folder string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(folder))
	if err != nil {
		return err
	}
	for dir := parent; ; dir = filepath.Dir(dir) {
		if err := onlyRootChanges(dir, true); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	// Keep the mode of an existing folder: it may be stricter.
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return onlyRootChanges(folder, false)
}

// onlyRootChanges fails if a folder belongs to another user or other users can write to it. If sticky
// is set, a folder with the sticky bit passes: other users cannot replace root's entries in it.
func onlyRootChanges(dir string, sticky bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case !known || stat.Uid != 0:
		return fmt.Errorf("%s does not belong to root", dir)
	case info.Mode().Perm()&0o022 != 0 && (!sticky || info.Mode()&fs.ModeSticky == 0):
		return fmt.Errorf("users other than root can write to %s", dir)
	}
	return nil
}

// checksums are the SHA-256 of the compressed archives that may be fetched, by platform and version.
// Those that are missing were never published: Postgres 14 and 15 for arm64, and all versions for
// Alpine on arm64.
var checksums = map[string]map[string]string{
	"darwin-amd64": {
		"14.18.0": "0c7119d45e4c64b97751a8a913f4be8d4395f5b319384d5577b77641f8d54e9c",
		"15.13.0": "b598f5282af8b765ba7c2814c08d02bd36ce9d276a8c2c7276aa060307b09b3f",
		"16.9.0":  "4bd733c160b0bdcc8fa4ba50ce1abebdbf3db3825dd2139f5504a24b7ed227f3",
		"17.5.0":  "9418e2e93bf4a767dcd56b417c0b823ab237f935ad2460df1ce43ed65ea017c3",
		"18.3.0":  "2c5f22fa675ee78264a2ea8c7543310c32590465a4f72fb4287ca65ec484f7dd",
	},
	"darwin-arm64v8": {
		"16.9.0": "090e91773217f8d3d222699a6da2bf5533ffab8c6b65b14df63cba3b1b63ea5a",
		"17.5.0": "746918d0d88eb766e51b43d93ac0d4dbcd6730ff0ac61399a4fcfd626d6ea287",
		"18.3.0": "61f9b7026404f15abd4ec7e5724f672795c08cecc58ece212f85da3bf4de2b91",
	},
	"linux-amd64": {
		"14.18.0": "e312ed49c5dd7de399019d96e68045660cb8ffd05c63464cc790fec8d1196ecf",
		"15.13.0": "ea2ce47da4b49c18ba26356c6e1b7284a38670448cd82d6aa764761e9362c21c",
		"16.9.0":  "53146949c7fb36014091ac8db42529ab9b923b4a06d0c0d9087694e9c296feef",
		"17.5.0":  "8f438e206259d3ec5be6fb8ee6180f5d46234156659ed1238f6ab4806cfccf0f",
		"18.3.0":  "e09b13df10e9df257275d498b19b8c214a3e86d7a5d8cd263b0860e308e8b0b6",
	},
	"linux-amd64-alpine": {
		"14.18.0": "fda7c59332dd57cd1035c54c94fcb945d1fe5f6fc59ae77357393cabf9dfb690",
		"15.13.0": "2e329116ba5120086d1da15c75cc37d8fa1cac162ad983dd9ccd17cc1d143177",
		"16.9.0":  "58c3ee961a6cbb7af8913cf2702f61269d7e49558e19de5d5d005ec5d20ee6df",
		"17.5.0":  "9bbbdc4a892b02911c3825ee6e29ffc2cc73df40acfcebf41a1ca3c5f804edb3",
		"18.3.0":  "5e47f96951026dc460b876fa62379f7c7666eb6293d076900e2c71703e5a1de6",
	},
	"linux-arm64v8": {
		"16.9.0": "c0dc09808068c99357cc9fbf9b4ecb6df1c0725f678cc2d6bfa68a48d6ef1062",
		"17.5.0": "b931564ba20d4009d70c37ceb27109213f696cfd507c4ecb769c6d6762454a1c",
		"18.3.0": "f9695b61cff9e5c9b8e02a938158740a711c7a55304dd49ca634c8b947bf6b27",
	},
}
