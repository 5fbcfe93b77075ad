package pg

import (
	"runtime"
	"testing"
)

func TestServer_ParentIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a process cannot be made to end with its parent here")
	}
	dir := t.TempDir()
	pid := killedChild(t, dir)
	eventually(t, "the server ends", func() bool { return !alive(t, pid, dir) })
}

func TestStart_OrphanedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid := killedChild(t, dir, noDeathSignalVariable+"=1")
	if !alive(t, pid, dir) {
		t.Fatal("the server ended with its parent: there is no orphan to find")
	}
	s := start(t, Config{DataDir: dir})
	if alive(t, pid, dir) {
		t.Error("the orphan still runs")
	}
	if now := postmaster(t, dir); now == pid {
		t.Error("the orphan was taken over")
	}
	if n := query[int](t, s, "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}

// A killed process is followed at once by the next one: the server may still be on its way down.
func TestStart_RightAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killedChild(t, dir)
	if n := query[int](t, start(t, Config{DataDir: dir}), "select 1"); n != 1 {
		t.Errorf("answered %d", n)
	}
}
