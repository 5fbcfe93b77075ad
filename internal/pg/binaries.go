package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
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
