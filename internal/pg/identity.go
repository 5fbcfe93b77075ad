package pg

import (
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

// identity is the user that Postgres runs as. Postgres refuses root, so root has to be somebody else towards it.
type identity struct {
	name string
	// uid and gid own the files, as this process sees them.
	uid, gid int
	apply    func(*syscall.SysProcAttr)
}

// own gives a folder with all that is in it to the identity, where it belongs to somebody else.
func (who identity) own(folder string) error {
	var top syscall.Stat_t
	if err := syscall.Stat(folder, &top); err != nil {
		return fmt.Errorf("owner of %s: %w", folder, err)
	}
	if int(top.Uid) == who.uid {
		return nil
	}
	root, err := os.OpenRoot(folder) // whose former owner may put links into it meanwhile
	if err != nil {
		return fmt.Errorf("give %s to user %s: %w", folder, who.name, err)
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, who.uid, who.gid)
	})
	if err = errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("give %s to user %s: %w", folder, who.name, err)
	}
	return nil
}

// becomes makes a program run as the identity, without our variables.
func (who identity) becomes(cmd *exec.Cmd) {
	cmd.Env, cmd.SysProcAttr = environment(), &syscall.SysProcAttr{}
	who.apply(cmd.SysProcAttr)
}

// reaches says whether the identity can start at all, and work in a folder.
func (who identity) reaches(ctx context.Context, folder string) error {
	return who.tests(ctx, folder, "test -w . && test -x .")
}

// enters says whether the identity can read a folder and what is below it.
func (who identity) enters(ctx context.Context, folder string) error {
	return who.tests(ctx, folder, "test -r . && test -x .")
}

func (who identity) tests(ctx context.Context, folder, test string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", test)
	cmd.Dir = folder
	who.becomes(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("as %s: %w", who.name, err)
	}
	return nil
}

// settle decides whom Postgres runs as and which folder is its home, and makes that folder, owned by that user.
//
// The home is the folder postgres of the data folder. Where root cannot hand that to anybody, it is a folder below /var/lib,
// to which postgres in the data folder is a link.
func (s *Server) settle(ctx context.Context, dataDir string) (identity, string, error) {
	home := filepath.Join(dataDir, "postgres")
	if os.Geteuid() != 0 {
		who := identity{name: "uid " + strconv.Itoa(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid(), apply: func(*syscall.SysProcAttr) {}}
		if err := os.MkdirAll(home, 0o700); err != nil {
			return who, "", fmt.Errorf("database folder: %w", err)
		}
		real, err := filepath.EvalSymlinks(home)
		if err != nil {
			return who, "", fmt.Errorf("database folder: %w", err)
		}
		return who, real, nil
	}
	var candidates []identity
	if !s.cfg.noNamespaces {
		candidates = append(candidates, namespaceIdentities()...)
	}
	users := otherUsers(dataDir)
	if len(users) == 0 && !anyReaches(ctx, candidates) {
		if err := createUser(ctx, userTools); err != nil {
			return identity{}, "", fmt.Errorf("postgres refuses to run as root, and the machine has no other user for it: "+
				"create one (useradd --system annals), start annals as an ordinary user, or name a server: %w", err)
		}
		s.log.WarnContext(ctx, "created a system user for postgres, which refuses to run as root", "user", serviceUser)
		users = namedUsers(serviceUser)
	}
	candidates = append(candidates, users...)
	elsewhere, err := s.homeElsewhere(home)
	if err != nil {
		return identity{}, "", err
	}
	homes := []string{home, elsewhere}
	if link, err := os.Readlink(home); err == nil && link == elsewhere {
		homes = homes[1:]
	}
	var errs []error
	for _, folder := range homes {
		for _, who := range candidates {
			if err := who.reaches(ctx, "/"); err != nil && !errors.As(err, new(*exec.ExitError)) {
				errs = append(errs, err)
				continue
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return identity{}, "", fmt.Errorf("database folder: %w", err)
			}
			if err := who.own(folder); err != nil {
				return identity{}, "", err
			}
			if err := who.reaches(ctx, folder); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", folder, err))
				continue
			}
			if folder == elsewhere {
				if err := linkTo(home, elsewhere); err != nil {
					return identity{}, "", err
				}
				s.log.WarnContext(ctx, "no user that postgres could run as reaches the data folder, so the database is elsewhere", "folder", elsewhere, "user", who.name)
			}
			return who, folder, nil
		}
	}
	return identity{}, "", fmt.Errorf("postgres refuses to run as root, and no other user could be taken: start annals as an ordinary user, or name a server: %w", errors.Join(errs...))
}

// homeElsewhere is the folder below /var/lib that belongs to one data folder.
func (s *Server) homeElsewhere(home string) (string, error) {
	base := s.cfg.elsewhere
	if base == "" {
		base = "/var/lib"
	}
	sum := fnv.New64a()
	if _, err := sum.Write([]byte(home)); err != nil {
		return "", fmt.Errorf("database folder: %w", err)
	}
	return filepath.Join(base, fmt.Sprintf("annals-postgres-%016x", sum.Sum64())), nil
}

// linkTo replaces an empty folder by a link to where the database is.
func linkTo(home, elsewhere string) error {
	if link, err := os.Readlink(home); err == nil && link == elsewhere {
		return nil
	}
	// Remove refuses a folder that holds anything.
	if err := os.Remove(home); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database folder: %w", err)
	}
	if err := os.Symlink(elsewhere, home); err != nil {
		return fmt.Errorf("database folder: %w", err)
	}
	return nil
}

// nobody is the user that many programs of a machine share: its files are everybody's.
const nobody = 65534

// otherUsers are users that root may become: the owner of the data folder, then those that exist for such ends. initdb wants one that
// the machine knows, so no free number will do.
func otherUsers(dataDir string) []identity {
	var found []identity
	var owner syscall.Stat_t
	if err := syscall.Stat(dataDir, &owner); err == nil {
		if u, err := user.LookupId(strconv.Itoa(int(owner.Uid))); err == nil {
			found = append(found, namedUsers(u.Username)...)
		}
	}
	return append(found, namedUsers(serviceUser, "postgres", "_postgres")...)
}

// serviceUser is the user that is created for Postgres on a machine that has none for it.
const serviceUser = "annals"

// userTools are the commands that create a system user, of which a machine has one: that of most systems, and BusyBox's.
var userTools = [][]string{
	{"useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/false", serviceUser},
	{"adduser", "-S", "-D", "-H", "-s", "/bin/false", serviceUser},
}

// createUser creates the service user by the first of the commands that the machine has.
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
	return fmt.Errorf("create user %s: the machine has no command for it", serviceUser)
}

// anyReaches reports whether root can become any of the identities.
func anyReaches(ctx context.Context, candidates []identity) bool {
	return slices.ContainsFunc(candidates, func(who identity) bool { return who.reaches(ctx, "/") == nil })
}

// namedUsers are those of the users that the machine knows, but for root and nobody.
func namedUsers(names ...string) []identity {
	var found []identity
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID != nil || errGID != nil || uid == 0 || uid == nobody || name == "nobody" {
			continue
		}
		found = append(found, identity{name: name, uid: uid, gid: gid, apply: func(attr *syscall.SysProcAttr) {
			attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}})
	}
	return found
}
