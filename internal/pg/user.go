package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// osUser is a user that Postgres can run as. Postgres refuses to run as root.
type osUser struct {
	name string
	// uid and gid own the files, as seen by this process.
	uid, gid int
	apply    func(*syscall.SysProcAttr)
}

// takeOver makes the user the owner of a folder and of everything in it, if another user owns it.
func (user osUser) takeOver(folder string) error {
	var top syscall.Stat_t
	if err := syscall.Stat(folder, &top); err != nil {
		return fmt.Errorf("owner of %s: %w", folder, err)
	}
	if int(top.Uid) == user.uid {
		return nil
	}
	root, err := os.OpenRoot(folder) // the former owner may be adding links to it
	if err != nil {
		return fmt.Errorf("give %s to user %s: %w", folder, user.name, err)
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, user.uid, user.gid)
	})
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("give %s to user %s: %w", folder, user.name, err)
	}
	return nil
}

// runAs makes a program run as the user, with the environment of Postgres' programs only.
func (user osUser) runAs(cmd *exec.Cmd) {
	cmd.Env, cmd.SysProcAttr = environment(), &syscall.SysProcAttr{}
	user.apply(cmd.SysProcAttr)
}

// canWork fails if a program cannot run as the user or cannot write to a folder. An *exec.ExitError
// means that it ran.
func (user osUser) canWork(ctx context.Context, folder string) error {
	return user.check(ctx, folder, "test -w . && test -x .")
}

// canRead fails if the user cannot list and enter a folder.
func (user osUser) canRead(ctx context.Context, folder string) error {
	return user.check(ctx, folder, "test -r . && test -x .")
}

func (user osUser) check(ctx context.Context, folder, test string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", test)
	cmd.Dir = folder
	user.runAs(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("as %s: %w", user.name, err)
	}
	return nil
}

// chooseUser chooses the user that Postgres runs as and its home folder, which it creates and makes
// the user's: see the package comment for the order.
//
// The home is the folder postgres of the data folder. If no user can reach that, it is a folder below
// /var/lib, and postgres in the data folder is a link to it.
func (s *Server) chooseUser(ctx context.Context, dataDir string) (osUser, string, error) {
	home := filepath.Join(dataDir, "postgres")
	if os.Geteuid() != 0 {
		user := osUser{
			name: "uid " + strconv.Itoa(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid(),
			apply: func(*syscall.SysProcAttr) {},
		}
		if err := os.MkdirAll(home, 0o700); err != nil {
			return user, "", fmt.Errorf("database folder: %w", err)
		}
		real, err := filepath.EvalSymlinks(home)
		if err != nil {
			return user, "", fmt.Errorf("database folder: %w", err)
		}
		return user, real, nil
	}
	var candidates []osUser
	if !s.cfg.noNamespaces {
		candidates = append(candidates, namespaceUsers()...)
	}
	users := otherUsers(dataDir)
	if len(users) == 0 && !anyUsable(ctx, candidates) {
		if err := createUser(ctx, userTools); err != nil {
			return osUser{}, "", fmt.Errorf("postgres refuses to run as root, and this machine has no user for it: "+
				"create one (useradd --system annals), start annals as an ordinary user, or name a server: %w", err)
		}
		s.logger.WarnContext(ctx, "created system user for postgres, which refuses to run as root", "user", serviceUser)
		users = namedUsers(serviceUser)
	}
	candidates = append(candidates, users...)
	elsewhere, err := s.fallbackDir(home)
	if err != nil {
		return osUser{}, "", err
	}
	homes := []string{home, elsewhere}
	if link, err := os.Readlink(home); err == nil && link == elsewhere {
		homes = homes[1:]
	}
	var errs []error
	for _, folder := range homes {
		for _, user := range candidates {
			if err := user.canWork(ctx, "/"); err != nil && !errors.As(err, new(*exec.ExitError)) {
				errs = append(errs, err)
				continue
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return osUser{}, "", fmt.Errorf("database folder: %w", err)
			}
			if err := user.takeOver(folder); err != nil {
				return osUser{}, "", err
			}
			if err := user.canWork(ctx, folder); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", folder, err))
				continue
			}
			if folder == elsewhere {
				if err := linkTo(home, elsewhere); err != nil {
					return osUser{}, "", err
				}
				s.logger.WarnContext(ctx, "data folder is out of reach for postgres, database is in another folder",
					"folder", elsewhere, "user", user.name)
			}
			return user, folder, nil
		}
	}
	return osUser{}, "", fmt.Errorf("postgres refuses to run as root, and cannot run as another user: "+
		"start annals as an ordinary user, or name a server: %w", errors.Join(errs...))
}

// fallbackDir returns the home below /var/lib of one data folder: its name contains a hash of the
// path.
func (s *Server) fallbackDir(home string) (string, error) {
	base := cmp.Or(s.cfg.fallbackBase, "/var/lib")
	sum := fnv.New64a()
	if _, err := sum.Write([]byte(home)); err != nil {
		return "", fmt.Errorf("database folder: %w", err)
	}
	return filepath.Join(base, fmt.Sprintf("annals-postgres-%016x", sum.Sum64())), nil
}

// linkTo replaces the empty folder home by a link to the database's folder.
func linkTo(home, elsewhere string) error {
	if link, err := os.Readlink(home); err == nil && link == elsewhere {
		return nil
	}
	// Remove fails on a folder that is not empty.
	if err := os.Remove(home); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database folder: %w", err)
	}
	if err := os.Symlink(elsewhere, home); err != nil {
		return fmt.Errorf("database folder: %w", err)
	}
	return nil
}

// nobodyUID is the user that many programs of a machine share, so that they could read its files.
const nobodyUID = 65534

// otherUsers returns users that root can become: the owner of the data folder, then the usual service
// users. initdb requires a user of the machine's user database, so a free id is not enough.
func otherUsers(dataDir string) []osUser {
	var found []osUser
	var owner syscall.Stat_t
	if err := syscall.Stat(dataDir, &owner); err == nil {
		if u, err := user.LookupId(strconv.Itoa(int(owner.Uid))); err == nil {
			found = append(found, namedUsers(u.Username)...)
		}
	}
	return append(found, namedUsers(serviceUser, "postgres", "_postgres")...)
}

// serviceUser is the system user that is created if the machine has no user for Postgres.
const serviceUser = "annals"

// userTools are the commands that create a system user: that of most systems, and BusyBox's.
var userTools = [][]string{
	{"useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/false", serviceUser},
	{"adduser", "-S", "-D", "-H", "-s", "/bin/false", serviceUser},
}

// createUser creates the service user with the first command that exists.
func createUser(ctx context.Context, tools [][]string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, tool := range tools {
		path, err := exec.LookPath(tool[0])
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, tool[1:]...)
		cmd.Env = environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("create user %s: %w: %s", serviceUser, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	return fmt.Errorf("create user %s: the machine has neither useradd nor adduser", serviceUser)
}

// anyUsable reports whether root can become any of the users.
func anyUsable(ctx context.Context, candidates []osUser) bool {
	return slices.ContainsFunc(candidates, func(user osUser) bool { return user.canWork(ctx, "/") == nil })
}

// namedUsers returns the users of these names that the machine has, except root and nobody.
func namedUsers(names ...string) []osUser {
	var found []osUser
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID != nil || errGID != nil || uid == 0 || uid == nobodyUID || name == "nobody" {
			continue
		}
		found = append(found, osUser{name: name, uid: uid, gid: gid, apply: func(attr *syscall.SysProcAttr) {
			attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}})
	}
	return found
}
