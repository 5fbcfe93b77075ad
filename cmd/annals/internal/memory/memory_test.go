package memory

import (
	"testing"
	"testing/fstest"
)

func TestAim(t *testing.T) {
	const gib = 1 << 30
	big := "MemTotal:       65536000 kB\nMemFree: 1 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, most},
		"big machine":   {map[string]string{"proc/meminfo": big}, most},
		"small machine": {map[string]string{"proc/meminfo": "MemTotal: 1048576 kB\n"}, gib * 40 / 100},
		"cgroup 2": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 2, the one above is narrower": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "268435456\n",
		}, gib / 4 * 40 / 100},
		"cgroup 2, container": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/../../kubepods/x\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 2, no limit": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n",
		}, most},
		"cgroup 1": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
		}, gib / 2 * 40 / 100},
		"cgroup 1, no limit": {map[string]string{
			"proc/meminfo": big, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, most},
		"wider than the machine": {map[string]string{
			"proc/meminfo": "MemTotal: 1048576 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8589934592\n",
		}, gib * 40 / 100},
		"unreadable": {map[string]string{
			"proc/meminfo": "MemTotal: many kB\n", "proc/self/cgroup": "0:\n", "sys/fs/cgroup/memory.max": "much\n",
		}, most},
	} {
		system := fstest.MapFS{}
		for name, text := range c.files {
			system[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Aim(system); got != c.want {
			t.Errorf("%s: got %d MiB, want %d MiB", name, got>>20, c.want>>20)
		}
	}
}
