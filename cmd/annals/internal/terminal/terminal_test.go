package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// Neither a pipe nor the null device, which is a device of characters as a terminal is, can answer.
func TestAsk_WithoutTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, in := range map[string]io.Reader{"a pipe": strings.NewReader("y\n"), "the null device": null} {
		var out bytes.Buffer
		if yes, err := (Streams{In: in, Out: &out}).Ask("Go on?"); yes || !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v, %v", name, yes, err)
		}
		if asked := out.String(); asked != "" && !strings.HasSuffix(asked, "\n") {
			t.Errorf("%s: what follows would be on the line of the question: %q", name, asked)
		}
	}
}
