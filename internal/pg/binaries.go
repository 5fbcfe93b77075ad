package pg

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// oldest is the oldest major version that the projections' SQL runs on.
const oldest = 14

// installation is a folder with the programs of one Postgres.
type installation struct {
	dir     string
	version string // as it says, "15.14"
	major   int
}

func (i installation) program(name string) string { return filepath.Join(i.dir, name) }

// binaries finds the programs for a database folder of a major version, 0 for a new one: the machine's, else fetched ones. Whatever is
// run for it runs as the server's user.
func (s *Server) binaries(ctx context.Context, major int, dataDir, home string, who identity) (installation, error) {
	dirs := s.cfg.searchPath
	if dirs == nil {
		dirs = machineFolders()
	}
	fits := func(i installation) bool { return i.major == major || major == 0 && i.major >= oldest }
	found := installations(ctx, who, dirs)
	if n := slices.IndexFunc(found, fits); n >= 0 {
		return found[n], nil
	}
	cache, err := s.cacheFolder(ctx, dataDir, home, who)
	if err == nil {
		cached := installations(ctx, who, cachedFolders(cache))
		if n := slices.IndexFunc(cached, fits); n >= 0 {
			return cached[n], nil
		}
		s.log.InfoContext(ctx, "fetching postgres, since this machine has none that fits", "major", major)
		var fetched installation
		if fetched, err = s.fetched(ctx, cache, major, who); err == nil {
			return fetched, nil
		}
		found = append(found, cached...)
	}
	if major == 0 {
		return installation{}, fmt.Errorf("no Postgres %d or newer on this machine (looked on PATH and in /usr/lib/postgresql), and none could be fetched: install one, or name a server: %w", oldest, err)
	}
	var have []string
	for _, i := range found {
		have = append(have, i.version)
	}
	return installation{}, fmt.Errorf("%s was made by Postgres %d, this machine has %s: install Postgres %d, or move the folder away to have it built anew from the log (fetching it failed: %w)",
		home, major, cmp.Or(strings.Join(have, ", "), "none"), major, err)
}

// fetched fetches the programs of a major version and asks them for it.
func (s *Server) fetched(ctx context.Context, cache string, major int, who identity) (installation, error) {
	folder, err := s.fetch(ctx, cache, major)
	if err != nil {
		return installation{}, err
	}
	return inspect(ctx, who, folder)
}

// machineFolders are the folders that may hold Postgres on this machine; some do not exist.
func machineFolders() []string {
	var dirs []string
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// A link on PATH leads to the folder that has the other programs too.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/lib/postgresql*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		// The patterns are constant and right, which is all that Glob could complain of.
		matches, _ := filepath.Glob(pattern)
		dirs = append(dirs, matches...)
	}
	return dirs
}

// installations asks each folder for its version, and returns those that can answer, newest first.
func installations(ctx context.Context, who identity, dirs []string) []installation {
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
		if i, err := inspect(ctx, who, dir); err == nil {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b installation) int { return cmp.Compare(b.major, a.major) })
	return found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspect asks the programs of a folder for their version, as the server's user. A folder without both programs is an error.
func inspect(ctx context.Context, who identity, dir string) (installation, error) {
	i := installation{dir: dir}
	if _, err := exec.LookPath(i.program("initdb")); err != nil {
		return i, fmt.Errorf("inspect %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.program("postgres"), "--version")
	who.becomes(cmd)
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
