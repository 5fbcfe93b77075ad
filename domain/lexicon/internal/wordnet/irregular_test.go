package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

func TestRun(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"index.noun": "  1 Free of charge.  \n  2   \n  3 As is.  \nground n 1 1 @ 1 1 00000001  \ndove n 1 1 @ 1 1 00000002  \n",
		"index.verb": "found v 1 1 @ 1 1 00000003  \n", "index.adj": "", "index.adv": "",
		"noun.exc": "wives wife\nhangers-on hanger-on\n",
		"verb.exc": "ground grind\ndove dive\nfound find\nlaid lay\nlay lie\nbetter better\nbet bett\nbett bet\n",
		"adj.exc":  "better good well\n", "adv.exc": "better well\n",
		"cntlist.rev": "ground%1:17:01:: 1 34\ngrind%2:35:00:: 1 2\ndove%1:05:00:: 1 1\ndive%2:38:00:: 1 3\ndive%2:38:01:: 2 4\n" +
			"found%2:41:00:: 1 5\nfind%2:39:00:: 1 9\ngood%3:00:01:: 1 7\nwell%4:02:00:: 1 6\n",
	} {
		runtest.Must(t, os.WriteFile(filepath.Join(from, name), []byte(text), 0o600))
	}
	runtest.Must(t, run([]string{from, to}))
	for name, want := range map[string]string{
		"LICENSE":       "Free of charge.\n\nAs is.\n",
		"irregular.txt": "better good\ndove dive\nfound find\nlaid lie\nlay lie\nwives wife\n",
	} {
		got, err := os.ReadFile(filepath.Join(to, name))
		runtest.Must(t, err)
		if _, body, _ := strings.Cut(string(got), "its base.\n"); body != want && string(got) != want {
			t.Errorf("%s is\n%s", name, got)
		}
	}
	runtest.Must(t, os.WriteFile(filepath.Join(from, "cntlist.rev"), []byte("ground%1:17:01:: 1 many\n"), 0o600))
	if err := run([]string{from, to}); err == nil || !strings.Contains(err.Error(), "line 1 of ") {
		t.Errorf("a count that is none: %v", err)
	}
	if err := run([]string{t.TempDir(), to}); err == nil {
		t.Error("a folder without WordNet is taken")
	}
}
