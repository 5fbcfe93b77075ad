package commands_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/auth"
)

func TestReadIdentityFile(t *testing.T) {
	ana := identity.Row{Identity: "ana", Traits: traits{"team": "red", "site": "Oslo"}}
	ben := identity.Row{Identity: "ben", Traits: traits{"site": "Rome"}}
	for name, c := range map[string]struct {
		file string
		want commands.IdentityFile
	}{
		"with commas":     {"identity,team,site\nana,red,Oslo\nben,,Rome\n", commands.IdentityFile{Rows: []identity.Row{ana, ben}}},
		"of a table":      {"\ufeffIdentity;team;site\r\nana;red;Oslo\r\nben;;Rome", commands.IdentityFile{Rows: []identity.Row{ana, ben}}},
		"with tabs":       {"team\tidentity\tsite\nred\tana\tOslo\n", commands.IdentityFile{Rows: []identity.Row{ana}}},
		"with empty rows": {"identity, team ,site\n\nana,red,Oslo\n\n", commands.IdentityFile{Rows: []identity.Row{ana}}},
		"without rows":    {"identity,team,site\n", commands.IdentityFile{}},
		"with quotes": {"identity,team,site\n\"a,\"\"b\"\"\nc\",x,\n", commands.IdentityFile{Rows: []identity.Row{
			{Identity: "a,\"b\"\nc", Traits: traits{"team": "x"}},
		}}},
		"with problems": {
			"identity,team,site\nana,red\n\"x\ny\",\"red\"z,\n,red,\nana,red,Oslo\nana,blue,\nben,,Rome\n" +
				strings.Repeat("x", 201) + ",,\ncid," + strings.Repeat("y", 2001) + ",\n",
			commands.IdentityFile{Rows: []identity.Row{ana, ben}, Bad: 6, Problems: []commands.RowProblem{
				{Line: 2, Message: "has 2 cells: the header has 3"},
				{Line: 3, Message: `extraneous or missing " in quoted-field`},
				{Line: 5, Column: "identity", Message: "is empty"},
				{Line: 7, Column: "identity", Message: "line 6 has the same identity: remove one of the two"},
				{Line: 9, Column: "identity", Message: "has 201 characters: want 1 to 200"},
				{Line: 10, Column: "team", Message: "has 2001 characters: want 1 to 2000"},
			}},
		},
	} {
		got, err := commands.ReadIdentityFile([]byte(c.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.want.Keys = []string{"team", "site"}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadIdentityFile_Unreadable(t *testing.T) {
	for name, file := range map[string]string{
		"is empty":               "",
		"no column \"identity\"": "name,team\nana,red\n",
		"names \"team\" twice":   "identity,team,team\n",
		"column 2":               "identity,,team\n",
		"not UTF-8":              "identity,team\n\xff,red\n",
		"more than 20000 rows":   "identity\n" + strings.Repeat("a\n", limit.IdentityFileRows+1),
		"more than 1048576":      "identity\n" + strings.Repeat("a", limit.IdentityFile),
		"1001 traits":            "identity" + manyColumns(limit.Traits+1) + "\n",
	} {
		_, err := commands.ReadIdentityFile([]byte(file))
		f, is := errors.AsType[*fault.Error](err)
		if !is || f.Kind != fault.Invalid || !strings.Contains(f.Msg, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := "identity,team\n" + strings.Repeat("x\n", 500)
	got, err := commands.ReadIdentityFile([]byte(many))
	if err != nil || got.Bad != 500 || len(got.Problems) != 100 {
		t.Errorf("many problems: %d of %d, %v", len(got.Problems), got.Bad, err)
	}
}

func manyColumns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, ",t", i)
	}
	return b.String()
}

func FuzzReadIdentityFile(f *testing.F) {
	f.Add([]byte("identity,team\nana,red\nben,\n"))
	f.Add([]byte("\ufeffidentity;\"a\nb\"\n;;\n\"x"))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := commands.ReadIdentityFile(file)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, row := range got.Rows {
			if row.Identity == "" || seen[row.Identity] || len(row.Traits) > len(got.Keys) {
				t.Fatalf("row %v of %q", row, file)
			}
			seen[row.Identity] = true
		}
		if len(got.Problems) > got.Bad || got.Bad > 0 && len(got.Problems) == 0 {
			t.Fatalf("%d problems of %d rows", len(got.Problems), got.Bad)
		}
	})
}

func TestImportIdentities_InParts(t *testing.T) {
	w := newFixture(t)
	w.putIdentity(w.call, "person 7", traits{"old": "yes"})
	rows := make([]identity.Row, limit.BulkRows+3)
	for n := range rows {
		rows[n] = identity.Row{Identity: fmt.Sprint("person ", n), Traits: traits{"team": "red"}}
	}
	created, updated, err := w.ImportIdentities(t.Context(), w.later(1), rows)
	if err != nil || created != limit.BulkRows+2 || updated != 1 {
		t.Fatalf("created %d, updated %d, %v", created, updated, err)
	}
	if bulks := len(w.bulks()); bulks != 2 {
		t.Errorf("%d bulk writes, want 2", bulks)
	}
	for name, want := range map[string]identity.Origin{"person 7": identity.OriginAPI, "person 1001": identity.OriginCSV} {
		if got := w.wantTraits(t, name, traits{"team": "red"}); got.Origin != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPutIdentity_OriginOfThePerson(t *testing.T) {
	w := newFixture(t)
	call := w.call
	call.Principal.Kind = auth.Person
	w.putIdentity(call, "ana", traits{"team": "red"})
	w.putIdentity(w.later(1), "ana", traits{"team": "blue"})
	if got, _ := w.record("ana"); got.Origin != identity.OriginConsole {
		t.Errorf("the origin is %s", got.Origin)
	}
}
