package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDataPoint_EveryCharacterIsReadBack(t *testing.T) {
	var content strings.Builder
	for r := range rune(0x2100) {
		content.WriteRune(r)
	}
	content.WriteString("漢字 \U0001F600 \uFFFF")
	label, author := "", "a \"b\"\n"
	var b bytes.Buffer
	w := &lineWriter{to: bufio.NewWriter(&b)}
	p := &text{
		content: []byte(content.String()), metadata: []byte("{ \"a\": [1.50, \"<&\\u0000\"],\n\"b\":null }"), label: &label, author: &author,
		readers: readers{slug: "team"},
	}
	at := Place{time.Date(1, 2, 3, 4, 5, 6, 7000, time.UTC), "id\u2028"}
	if err := w.dataPoint(at, p); err != nil {
		t.Fatal(err)
	}
	if err := w.to.Flush(); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 || !strings.HasSuffix(b.String(), "\n") {
		t.Fatalf("%q is not one line", b.String())
	}
	var got struct {
		ID, Timestamp, Identity, Audience, Content string
		Label                                      *string
		Metadata                                   json.RawMessage
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Content != content.String() || got.ID != at.SourceID || got.Identity != author || got.Audience != "team" ||
		got.Label == nil || *got.Label != "" || got.Timestamp != "0001-02-03T04:05:06.000007Z" {
		t.Errorf("read back: %+v", got)
	}
	if string(got.Metadata) != `{"a":[1.50,"<&\u0000"],"b":null}` {
		t.Errorf("metadata %s", got.Metadata)
	}
}

// What is private to the author has no audience.
func TestDataPoint_Private(t *testing.T) {
	var b bytes.Buffer
	w, author := &lineWriter{to: bufio.NewWriter(&b)}, "ana"
	p := &text{content: []byte("y"), author: &author, readers: readers{identity: author}}
	if err := w.dataPoint(Place{time.Unix(0, 0), "x"}, p); err != nil {
		t.Fatal(err)
	}
	if err := w.to.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `{"id":"x","timestamp":"1970-01-01T00:00:00.000000Z","identity":"ana","private":true,"content":"y"}` + "\n"
	if b.String() != want {
		t.Errorf("got %s", b.String())
	}
}

func TestDataPoint_OmitsWhatIsNotSet(t *testing.T) {
	var b bytes.Buffer
	w := &lineWriter{to: bufio.NewWriter(&b)}
	if err := w.dataPoint(Place{time.Unix(0, 0), "x"}, &text{content: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if err := w.to.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := `{"id":"x","timestamp":"1970-01-01T00:00:00.000000Z","content":"y"}` + "\n"; b.String() != want {
		t.Errorf("got %s", b.String())
	}
}
