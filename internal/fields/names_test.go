package fields

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func TestNames_Misspelt(t *testing.T) {
	names := NewNames("id", "to", "sort", "label", "content", "audience", "occurredFrom", "occurredTo")
	for other, want := range map[string]string{
		// The same but for case, "_" and "-", of any length.
		"ID": "id", "i_d": "id", "-Id-": "id", "OCCURRED_FROM": "occurredFrom", "occurred-from": "occurredFrom",
		"__audience__": "audience", strings.Repeat("_", 900) + "SORT": "sort",
		// One edit of four letters or more.
		"sor": "sort", "ort": "sort", "sorts": "sort", "srot": "sort", "xort": "sort", "lable": "label", "contnet": "content",
		"content\u0301": "content", "cont\u00e9nt": "content", "audience ": "audience", "cont\xffnt": "content",
		// Two edits of eight letters or more.
		"audiance": "audience", "adiance": "audience", "audeinec": "audience", "uaxdience": "audience", "adience": "audience",
		"occuredFrm": "occurredFrom", "occurredAt": "occurredTo", "occurred": "occurredTo", "Audiance": "audience",
		// Too far, or too short a name.
		"": "", "_": "", "i": "", "idd": "", "t": "", "too": "", "ot": "", "so": "", "sotr_": "", "labels_": "",
		"lbae": "", "context!": "", "audio": "", "audences!": "", "occur": "", "title": "", "projectId": "",
		strings.Repeat("audience", 100): "",
	} {
		if got := names.misspelt([]byte(other)); got != want {
			t.Errorf("%q misspells %q, want %q", other, got, want)
		}
	}
	// The nearest name counts.
	if got := NewNames("occurredTo", "occurredAt").misspelt([]byte("occurredA")); got != "occurredAt" {
		t.Errorf("occurredA misspells %s", got)
	}
	if got := (Names{}).misspelt([]byte("limit")); got != "" {
		t.Errorf("no name is %q", got)
	}
}

// TestNames_Distance holds the comparison against the distance of Damerau and Levenshtein.
func TestNames_Distance(t *testing.T) {
	text := rapid.SliceOfN(rapid.SampledFrom([]rune("abcé")), 0, 7)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		for edits := range 3 {
			if got, want := within(a, b, edits), distance(a, b) <= edits; got != want {
				t.Fatalf("%q is within %d edits of %q: %v, want %v", string(a), edits, string(b), got, want)
			}
		}
	})
}

// TestNames_Edited makes one edit or two of a name: it is a misspelling, whatever the edits are.
func TestNames_Edited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"sort", "content", "identity", "maxTokens", "queryTimestamp"}).Draw(t, "name")
		edits := 1
		if len(name) >= twoEdits {
			edits = 2
		}
		other := []rune(name)
		for range edits {
			at, letter := rapid.IntRange(0, len(other)-1).Draw(t, "at"), rapid.RuneFrom([]rune("aexT_é")).Draw(t, "letter")
			switch rapid.IntRange(0, 3).Draw(t, "edit") {
			case 0:
				other = slices.Insert(other, at, letter)
			case 1:
				other = slices.Delete(other, at, at+1)
			case 2:
				other[at] = letter
			case 3:
				if at > 0 {
					other[at-1], other[at] = other[at], other[at-1]
				}
			}
		}
		if got := NewNames("id", name).misspelt([]byte(string(other))); got != name {
			t.Fatalf("%q misspells %q, want %s", string(other), got, name)
		}
	})
}

// distance is how many insertions, removals, replacements and swaps of neighbours turn a into b.
func distance(a, b []rune) int {
	last := map[rune]int{}
	far := len(a) + len(b)
	d := make([][]int, len(a)+2)
	for i := range d {
		d[i] = make([]int, len(b)+2)
		d[i][0] = far
		if i > 0 {
			d[i][1] = i - 1
		}
	}
	for j := range d[0] {
		d[0][j] = far
		if j > 0 {
			d[1][j] = j - 1
		}
	}
	for i := 1; i <= len(a); i++ {
		match := 0
		for j := 1; j <= len(b); j++ {
			k, l, cost := last[b[j-1]], match, 1
			if a[i-1] == b[j-1] {
				cost, match = 0, j
			}
			d[i+1][j+1] = min(d[i][j]+cost, d[i+1][j]+1, d[i][j+1]+1, d[k][l]+(i-k-1)+1+(j-l-1))
		}
		last[a[i-1]] = i
	}
	return d[len(a)+1][len(b)+1]
}

func TestProblems_MisspeltNamesBounded(t *testing.T) {
	var body strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&body, `,"audienc%c":1`, 'A'+i%26)
	}
	problems := namesOnly(t, "{"+body.String()[1:]+"}")
	if n := len(problems); n != mostMisspelt {
		t.Errorf("%d misspelt names are named", n)
	}
	if got := problems[0]; got != (Problem{"items[3].audiencA", "did you mean audience?"}) {
		t.Errorf("%+v", got)
	}
}

// The names of other services for who wrote and who may read are refused with what they are here, elsewhere ignored.
func TestProblems_ForeignNames(t *testing.T) {
	for name, want := range map[string]string{
		"user_id": "did you mean identity (whose text it is) or audience", "userId": "did you mean identity", "USERID": "did you mean identity",
		"agent_id": "did you mean identity", "group_id": "did you mean audience", "scope": "did you mean audience",
		"run_id": "did you mean metadata", "tags": "did you mean metadata",
	} {
		problems := namesOnly(t, `{"content":"x","`+name+`":"ana"}`)
		if len(problems) != 1 || problems[0].Field != "items[3]."+name || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: %+v", name, problems)
		}
	}
	if _, err := Decode([]byte(`{"content":"x","metadata":{"user_id":1},"user":1,"users_id":1}`), "", DataPointNames, DataPointOf); err != nil {
		t.Error(err)
	}
	with := DataPointNames.With("idempotencyKey")
	if _, err := Decode([]byte(`{"content":"x","user_id":"ana"}`), "", with, DataPointOf); err == nil {
		t.Error("user_id is ignored in a single send")
	}
	if _, err := Decode([]byte(`{"content":"x","user_id":"ana"}`), "", NewNames("content"), DataPointOf); err != nil {
		t.Error(err)
	}
}

// namesOnly returns the problems of the names of an object.
func namesOnly(t *testing.T, object string) []Problem {
	t.Helper()
	_, err := Decode([]byte(object), "items[3]", DataPointNames, func(Object) (bool, error) { return true, nil })
	f, is := errors.AsType[*fault.Error](err)
	if !is {
		t.Fatalf("it is refused with %v", err)
	}
	problems, _ := f.Data["errors"].([]Problem)
	return problems
}
