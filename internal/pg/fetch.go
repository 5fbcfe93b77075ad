package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fetchable is the minor version that is fetched of each major one; the newest is taken for a new database folder.
var fetchable = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14,
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const newestFetchable = 18

// cachedFolders are the folders of the versions that were fetched before.
func cachedFolders(cache string) []string {
	var dirs []string
	for major := range fetchable {
		dirs = append(dirs, filepath.Join(cache, strconv.Itoa(major), "bin"))
	}
	return dirs
}

// fetch downloads the programs of a major version, 0 for the newest, into the cache.
//
// The library only fetches as the first step of starting a server of its own. It is given a folder that looks initialised and
// holds no database, so that its start ends behind that step, and a port of 0, which it never opens; whether the fetch
// succeeded is told by the programs themselves.
func fetch(ctx context.Context, cache string, major int, repository string) (installation, error) {
	major = cmp.Or(major, newestFetchable)
	version, known := fetchable[major]
	if !known {
		return installation{}, fmt.Errorf("there is no Postgres %d to fetch", major)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return installation{}, fmt.Errorf("cache of binaries: %w", err)
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return installation{}, fmt.Errorf("cache of binaries: %w", err)
	}
	programs, nothing := filepath.Join(work, "programs"), filepath.Join(work, "nothing")
	if err := errors.Join(os.Chmod(work, 0o755), os.Mkdir(nothing, 0o700),
		os.WriteFile(filepath.Join(nothing, "PG_VERSION"), []byte(strconv.Itoa(major)+"\n"), 0o600)); err != nil {
		return installation{}, errors.Join(fmt.Errorf("cache of binaries: %w", err), os.RemoveAll(work))
	}
	config := embeddedpostgres.DefaultConfig().Version(version).Port(0).CachePath(work).RuntimePath(programs).DataPath(nothing).Logger(nil)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	started := make(chan error, 1)
	go func() { started <- embeddedpostgres.NewDatabase(config).Start() }()
	select {
	case <-ctx.Done():
		// The library takes no context: its download ends by itself, and its folder goes then.
		go func() {
			<-started
			_ = os.RemoveAll(work)
		}()
		return installation{}, fmt.Errorf("fetch postgres %s: %w", version, context.Cause(ctx))
	case err = <-started:
	}
	fetched, unusable := inspect(ctx, filepath.Join(programs, "bin"))
	if unusable != nil {
		return installation{}, errors.Join(fmt.Errorf("fetch postgres %s: %w", version, cmp.Or(err, unusable)), os.RemoveAll(work))
	}
	final := filepath.Join(cache, strconv.Itoa(major))
	if err := errors.Join(os.RemoveAll(final), os.Rename(programs, final), os.RemoveAll(work)); err != nil {
		return installation{}, fmt.Errorf("cache of binaries: %w", err)
	}
	fetched.dir = filepath.Join(final, "bin")
	return fetched, nil
}
