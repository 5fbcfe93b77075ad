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
	"strconv"
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
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, who.uid, who.gid)
	})
	if err != nil {
		return fmt.Errorf("give %s to user %s: %w", folder, who.name, err)
	}
	return nil
}

// reaches says whether the identity can start at all, and work in a folder.
func (who identity) reaches(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "test -w . && test -x .")
	cmd.Dir = folder
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	who.apply(cmd.SysProcAttr)
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
	candidates = append(candidates, otherUsers(dataDir)...)
	elsewhere, err := s.homeElsewhere(home)
	if err != nil {
		return identity{}, "", err
	}
	homes := []string{home, elsewhere}
	if link, err := os.Readlink(home); err == nil && link == elsewhere {
		homes = homes[1:]
	}
	var errs []error
	if len(candidates) == 0 {
		errs = append(errs, errors.New("the machine knows neither a user postgres nor nobody"))
	}
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

// otherUsers are users that root may become: the owner of the data folder, then those that exist for such ends.
func otherUsers(dataDir string) []identity {
	var found []identity
	add := func(u *user.User, err error) {
		if err != nil {
			return
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID != nil || errGID != nil || uid == 0 {
			return
		}
		found = append(found, identity{name: u.Username, uid: uid, gid: gid, apply: func(attr *syscall.SysProcAttr) {
			attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}})
	}
	var owner syscall.Stat_t
	if err := syscall.Stat(dataDir, &owner); err == nil && owner.Uid != 0 {
		add(user.LookupId(strconv.Itoa(int(owner.Uid))))
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		add(user.Lookup(name))
	}
	return found
}
