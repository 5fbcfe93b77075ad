package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/eventstore/node/storage"
)

// othersMode are the rights of other users.
const othersMode fs.FileMode = 0o077

// checkFolder reports whether a service can use the data folder. Without it a start ends.
func (e *examination) checkFolder() bool {
	dir := e.Service.Data.Dir
	if err := e.Service.Data.RefuseBackup(); err != nil {
		e.broken("folder", "name another folder with ANNALS_DATA_DIR", "%v", err)
		return false
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e.checkParent(dir)
	case err != nil:
		e.broken("folder", "check ANNALS_DATA_DIR, and the rights of the folders above it", "%s cannot be used: %v", dir, err)
		return false
	case !e.canWrite(dir):
		return false
	}
	if holder := storage.Holder(filepath.Join(dir, "log")); holder != "" {
		e.broken("folder", "stop that process, or name another folder with ANNALS_DATA_DIR",
			"another process has the log in %s open (%s)", dir, holder)
		return false
	}
	if info.Mode().Perm()&othersMode != 0 && !e.Service.Data.IsNew() {
		e.note("folder", "chmod 700 "+dir, "other users of this machine may open %s (mode %#o)", dir, info.Mode().Perm())
		return true
	}
	e.ok("folder", "%s can be used", dir)
	return true
}

// checkParent reports whether a folder that does not exist can be made.
func (e *examination) checkParent(dir string) bool {
	parent := filepath.Dir(filepath.Clean(dir))
	for {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) || parent == filepath.Dir(parent) {
			break
		}
		parent = filepath.Dir(parent)
	}
	if !e.canWrite(parent) {
		return false
	}
	e.ok("folder", "%s does not exist: a start makes it", dir)
	return true
}

// canWrite reports whether this user can make files in a folder, by making one without a name that lasts.
func (e *examination) canWrite(dir string) bool {
	probe, err := os.MkdirTemp(dir, ".doctor-*")
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		e.broken("folder", "give the folder to the user of the service (chown), or name another with ANNALS_DATA_DIR",
			"nothing can be made in %s: %v", dir, err)
	}
	return err == nil
}

// checkAddresses reports addresses on which a start could not listen.
func (e *examination) checkAddresses(ctx context.Context) {
	type address struct{ setting, addr string }
	list := []address{{"ANNALS_API_ADDR", e.Service.APIAddr}}
	if e.Service.Roles.Has(server.RoleConsole) {
		list = append(list, address{"ANNALS_CONSOLE_ADDR", e.Service.ConsoleAddr})
	}
	if e.Service.OpsAddr != "" {
		list = append(list, address{"ANNALS_OPS_ADDR", e.Service.OpsAddr})
	}
	for _, a := range list {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.addr)
		if err == nil {
			err = l.Close()
		}
		remedy := "choose another with " + a.setting
		switch {
		case err == nil:
			e.ok("ports", "%s (%s) is free", a.addr, a.setting)
		case errors.Is(err, syscall.EADDRINUSE):
			e.broken("ports", "stop what listens there (ss -ltnp names it), or "+remedy, "%s is in use", a.addr)
		case errors.Is(err, syscall.EACCES):
			e.broken("ports", remedy+" above 1023, or give the program CAP_NET_BIND_SERVICE",
				"this user may not listen on %s", a.addr)
		default:
			e.broken("ports", remedy, "nothing can listen on %s: %v", a.addr, err)
		}
	}
}

// checkDisk reports a disk on which writes would be refused.
func (e *examination) checkDisk() {
	dir := e.Service.Data.Dir
	for {
		var s syscall.Statfs_t
		err := syscall.Statfs(dir, &s)
		if parent := filepath.Dir(filepath.Clean(dir)); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		if err != nil {
			e.note("disk", "look at it with df", "the free space of %s cannot be read: %v", dir, err)
			return
		}
		e.disk(s.Bavail*uint64(s.Bsize), e.Service.MinFreeDisk) //nolint:gosec // the size of a block is positive
		return
	}
}

func (e *examination) disk(free, required uint64) {
	if free < required {
		e.broken("disk", "make space, or lower ANNALS_MIN_FREE_DISK", "%s are free and %s are required: writes are refused",
			humanize.Bytes(free), humanize.Bytes(required))
		return
	}
	e.ok("disk", "%s are free, %s are required", humanize.Bytes(free), humanize.Bytes(required))
}

const (
	// maxSkew is the most that two clocks may differ: tokens and leases are judged by them.
	maxSkew = 5 * time.Second
	// maxFuture is the most that a file may be newer than the clock: the clocks of shared folders differ a little.
	maxFuture = time.Minute
)

// checkClock reports a clock that was set back: the files of the data folder are then from the future.
func (e *examination) checkClock() {
	now, newest := e.Now(), time.Time{}
	for _, name := range []string{
		"", "log", datafolder.LastBackupFile, datafolder.CredentialsFile, datafolder.HashKeyFile,
	} {
		if info, err := os.Stat(filepath.Join(e.Service.Data.Dir, name)); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if ahead := newest.Sub(now); ahead > maxFuture {
		e.broken("clock", clockRemedy, "the data folder was written %s after the time of this machine, %s",
			ahead.Round(time.Second), now.UTC().Format(time.RFC3339))
		return
	}
	e.ok("clock", "it is %s", now.UTC().Format(time.RFC3339))
}

const clockRemedy = "let NTP set the clock (chronyd, systemd-timesyncd), then start again"

// skew reports a clock that differs from that of a server.
func (e *examination) skew(of string, theirs time.Time) {
	if d := theirs.Sub(e.Now()).Round(time.Second); d.Abs() > maxSkew {
		e.broken("clock", clockRemedy, "the clock of %s differs from this one by %s", of, d)
	}
}

// staleBackup is the age from which a backup is an old one.
const staleBackup = 7 * 24 * time.Hour

// checkBackup notes that there is no backup, or an old one. A cluster and a database of their own have others.
func (e *examination) checkBackup() {
	if e.Service.EventStore != server.Embedded || e.Service.Data.IsNew() {
		return
	}
	const remedy = "annals backup FOLDER makes one"
	switch at, ok, err := datafolder.LastBackup(e.Service.Data.Dir); {
	case err != nil:
		e.note("backup", remedy, "%v", err)
	case !ok:
		e.note("backup", remedy, "none is recorded")
	case e.Now().Sub(at) > staleBackup:
		e.note("backup", remedy, "the last one was made %s", humanize.RelTime(at, e.Now(), "ago", "from now"))
	default:
		e.ok("backup", "the last one was made %s", humanize.RelTime(at, e.Now(), "ago", "from now"))
	}
}
