package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/annals-project/annals/internal/pg"
	"github.com/annals-project/annals/internal/runtest"
)

// The packages of a run share one server. Its keeper is a process of its own, a test program that runs no test: it
// starts the server, and stops and removes it once no other process holds the file of its users. So the server goes
// with the last package, and with a run that is killed. Of a keeper that is killed, the next run removes the folder.
//
//	PREFIX        the folder of the server
//	PREFIX.users  locked shared by each user, exclusively by the keeper once there is none
//	PREFIX.keeper locked by the keeper
//	PREFIX.start  locked by the process that starts a keeper
//	PREFIX.url    the address, once the server accepts connections

// keeperVariable names the environment variable that makes a test program the keeper of a prefix.
const keeperVariable = "ANNALS_PGTEST_KEEPER"

func init() {
	prefix := os.Getenv(keeperVariable)
	if prefix == "" {
		return
	}
	if err := keep(prefix); err != nil {
		_ = os.WriteFile(prefix+".error", []byte(err.Error()), 0o600) // its output goes nowhere
		os.Exit(1)
	}
	os.Exit(0)
}

// settings let a server forget all when the machine stops: a test's data need not survive that. Nothing is vacuumed by
// itself: workers that look at each of many databases each minute took a third of the processor time of a run.
var settings = map[string]string{
	"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "wal_compression": "off",
	"max_connections": "1000", "autovacuum": "off",
}

// keep runs a server until it has no users.
func keep(prefix string) (err error) {
	keeper, err := lock(prefix+".keeper", syscall.LOCK_EX) // whether it is locked may be looked at just now
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	if err := os.RemoveAll(prefix); err != nil {
		return err
	}
	server, err := pg.Start(context.Background(), pg.Config{DataDir: prefix, Settings: settings})
	if err != nil {
		return errors.Join(err, os.RemoveAll(prefix))
	}
	defer func() {
		err = errors.Join(err, server.Close(), os.RemoveAll(prefix), os.Remove(prefix+".keeper"))
	}()
	if err := os.WriteFile(prefix+".part", []byte(server.URL()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(prefix+".part", prefix+".url"); err != nil {
		return err
	}
	users, err := lock(prefix+".users", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	// Who opened the file before and gets its lock after this sees that it is another one by then.
	return errors.Join(os.Remove(prefix+".url"), os.Remove(prefix+".users"), users.Close())
}

// lock opens and locks a file. It fails if another file has taken its place meanwhile.
func lock(path string, how int) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), how); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		locked, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(locked, now) {
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

// join makes this process a user of the server of the source tree, until users is closed, and returns the address.
func join(ctx context.Context) (users *os.File, address string, err error) {
	prefix, err := prefixOfTree()
	if err != nil {
		return nil, "", err
	}
	if users, err = lock(prefix+".users", syscall.LOCK_SH); err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, users.Close())
		}
	}()
	starting, err := lock(prefix+".start", syscall.LOCK_EX)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, os.Remove(prefix+".start"), starting.Close()) }()
	address, err = await(ctx, prefix)
	return users, address, err
}

// await returns the address of the server once it accepts connections. It starts a keeper unless there is one; one that
// is about to end is waited for.
func await(ctx context.Context, prefix string) (string, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for started := false; ; {
		kept, err := isKept(prefix)
		if err != nil {
			return "", err
		}
		if !kept && !started {
			if err := errors.Join(removeLeft(), startKeeper(prefix)); err != nil {
				return "", err
			}
			started = true
		}
		address, err := os.ReadFile(prefix + ".url")
		if err == nil && kept {
			return string(address), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if reason, err := os.ReadFile(prefix + ".error"); err == nil && started {
			return "", fmt.Errorf("the keeper of the server: %s", reason)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("the keeper of the server starts none: %w", ctx.Err())
		}
	}
}

func isKept(prefix string) (bool, error) {
	keeper, err := lock(prefix+".keeper", syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, keeper.Close()
}

// removeLeft removes the folders of keepers that were killed, for all trees; their servers ended with them.
func removeLeft() error {
	files, err := filepath.Glob(filepath.Join(runtest.MemoryFolder(), folderPrefix+strconv.Itoa(os.Getuid())+"-*.keeper"))
	if err != nil {
		return err
	}
	for _, file := range files {
		keeper, err := lock(file, syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		prefix := strings.TrimSuffix(file, ".keeper")
		errs := []error{os.RemoveAll(prefix)}
		for _, rest := range []string{".url", ".part", ".error", ".keeper"} {
			errs = append(errs, os.RemoveAll(prefix+rest))
		}
		if err := errors.Join(append(errs, keeper.Close())...); err != nil {
			return err
		}
	}
	return nil
}

// startKeeper starts this program as a keeper. It is in a session of its own, since an interrupt of a terminal ends all
// processes of a run.
func startKeeper(prefix string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	keeper := exec.Command(program)
	keeper.Dir = filepath.Dir(prefix)
	keeper.Env = append(os.Environ(), keeperVariable+"="+prefix)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keeper.Start(); err != nil {
		return err
	}
	return keeper.Process.Release()
}

// prefixOfTree returns where the server of this user and source tree is. The migrations of another tree may differ.
func prefixOfTree() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := root; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = dir
			break
		}
		if dir == filepath.Dir(dir) {
			break // a test program elsewhere: its own folder
		}
	}
	sum := sha256.Sum256([]byte(root))
	name := folderPrefix + strconv.Itoa(os.Getuid()) + "-" + hex.EncodeToString(sum[:6])
	return filepath.Join(runtest.MemoryFolder(), name), nil
}
