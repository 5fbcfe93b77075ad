package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestProcessorBelow_DescendantsOnly(t *testing.T) {
	proc := t.TempDir()
	// user, system, and the two of the children that ended, in hundredths of a second.
	for pid, stat := range map[int]string{
		10: "10 (annals) S 1 10 10 0 -1 0 0 0 0 0 9000 9000 0 0 20 0",
		11: "11 (postgres) S 10 11 11 0 -1 0 0 0 0 0 100 20 3 4 20 0",
		12: "12 (a (b) c) R 11 11 11 0 -1 0 0 0 0 0 50 0 0 0 20 0",
		13: "13 (stranger) S 1 13 13 0 -1 0 0 0 0 0 700 0 0 0 20 0",
	} {
		folder := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "stat"), []byte(stat), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := processorBelow(proc, 10)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(got-1.77) > 1e-9 {
		t.Errorf("got %v s, want 1.77 s", got)
	}
	if own, err := processorOf(proc, 11); err != nil || own != 1.2 {
		t.Errorf("one process without its children: %v s, %v, want 1.2 s", own, err)
	}
	if own, err := processorOf(t.TempDir(), 11); err != nil || own != 0 {
		t.Errorf("one process of a system that shows none: %v, %v", own, err)
	}
	if none, err := processorBelow(t.TempDir(), 10); err != nil || none != 0 {
		t.Errorf("a system that shows no processes: %v, %v", none, err)
	}
}

func TestParseStat_Invalid(t *testing.T) {
	for _, text := range []string{
		"", "12 postgres S 1", "12 (postgres) S 1 2", "x (postgres) S 10 11 11 0 -1 0 0 0 0 0 1 2 3 4",
		"12 (p) S 10 11 11 0 -1 0 0 0 0 0 1 b 3 4",
	} {
		if _, err := parseStat(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
