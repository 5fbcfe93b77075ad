package main

import (
	"slices"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/fakeapitest"
)

func TestBenchAnswers_RecordAndCompare(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	f.Texts["svc_sk_own"] = []client.DataPoint{{ID: "a", Content: "green tea"}, {ID: "b", Content: "a tea pot"}}
	t.Setenv("ANNALS_PROJECT_KEY", "svc_sk_own")
	questions := fakeapitest.Write(t, "questions", "tea\n\n"+`{"query": "pot", "identity": "ana"}`)
	got := measured(t, "answers", "record", questions, "--data-dir", dir, "--identity", "ben", "--at",
		"2026-01-02T10:00:00Z")
	if want := `{"query":"tea","identity":"ben","ids":["id-a","id-b"]}` + "\n" +
		`{"query":"pot","identity":"ana","ids":["id-b"]}` + "\n"; got.code != exitOK || got.stdout != want {
		t.Fatalf("got %+v, want %s", got, want)
	}
	wanted := []client.RecallRequest{
		{Query: "tea", Identity: "ben", Limit: 100, QueryTimestamp: "2026-01-02T10:00:00Z"},
		{Query: "pot", Identity: "ana", Limit: 100, QueryTimestamp: "2026-01-02T10:00:00Z"},
	}
	if !slices.Equal(wanted, f.Recalls) {
		t.Errorf("asked %+v", f.Recalls)
	}
	before := fakeapitest.Write(t, "before", got.stdout)
	if same := measured(t, "answers", "compare", before, before); same.code != exitOK || same.stdout != "" {
		t.Errorf("got %+v", same)
	}
	for name, c := range map[string]struct{ after, want string }{
		"another order":    {strings.Replace(got.stdout, `"id-a","id-b"`, `"id-b","id-a"`, 1), "1 of 2 answers differ"},
		"a result less":    {strings.Replace(got.stdout, `"id-a",`, ``, 1), "1 of 2 answers differ"},
		"another question": {strings.Replace(got.stdout, "pot", "cup", 1), "question 2 is"},
		"a question less":  {got.stdout[:strings.Index(got.stdout, "\n")], "one recording has 2 answers, the other 1"},
	} {
		differs := measured(t, "answers", "compare", before, fakeapitest.Write(t, "after", c.after))
		if differs.code != exitFailed || !strings.Contains(differs.stderr, c.want) {
			t.Errorf("%s: got %+v", name, differs)
		}
	}
}
