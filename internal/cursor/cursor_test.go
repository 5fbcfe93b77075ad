package cursor

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

func TestCursor_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Cursor{At: time.UnixMicro(rapid.Int64Range(0, MaxMicros).Draw(t, "at")).UTC(), ID: uuid.New()}
		if got, err := Parse(c.String()); err != nil || got != c {
			t.Fatalf("cursor %v came back as %v, %v", c, got, err)
		}
	})
	for _, text := range []string{"", "x", "AAAA", (Cursor{At: time.UnixMicro(MaxMicros + 1)}).String()} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is a cursor", text)
		}
	}
}
