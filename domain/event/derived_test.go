package event_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

func TestDerived_VersionFive(t *testing.T) {
	space := uuid.New()
	for _, name := range []string{"", "12", strings.Repeat("é", 300)} {
		if got, want := event.Derived(space, "kind:", name), uuid.NewSHA1(space, []byte("kind:"+name)); got != want {
			t.Errorf("%s of %.10q, want %s", got, name, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = event.Derived(space, "revision:", "12") }); n != 0 {
		t.Errorf("an id of a short name takes %v pieces of memory", n)
	}
}
