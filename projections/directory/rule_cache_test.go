package directory

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
)

func TestRuleCache_Bounds(t *testing.T) {
	c := newRuleCache()
	sized := func(at eventstore.Position, bytes int) cachedRules {
		return cachedRules{at: at, rules: &audience.Matcher{}, bytes: bytes}
	}
	small := uuid.New()
	c.put(small, sized(1, 100))
	c.put(uuid.New(), sized(1, maxCachedRulesOne+1))
	if len(c.projects) != 1 {
		t.Error("what is too big is kept")
	}
	var last uuid.UUID
	for range 10 {
		last = uuid.New()
		c.put(last, sized(7, maxCachedRulesOne))
		if total := c.bytes; total > maxCachedRules {
			t.Fatalf("%d bytes are kept", total)
		}
	}
	if _, ok := c.get(small, 1); !ok {
		t.Error("the small set made room for the big ones")
	}
	if len(c.projects) != 1+maxCachedRules/maxCachedRulesOne {
		t.Errorf("%d sets are kept", len(c.projects))
	}
	if _, ok := c.get(small, 2); ok {
		t.Error("the rules of another position are returned")
	}
	c.put(small, sized(2, 50))
	if _, ok := c.get(small, 2); !ok {
		t.Error("a set is not replaced")
	}
	sum := 0
	for _, kept := range c.projects {
		sum += kept.cost()
	}
	if sum != c.bytes {
		t.Errorf("%d bytes are kept, %d counted", sum, c.bytes)
	}
}

// One caller at a time reads the rules of a project, and a few those of all: each set may have
// megabytes.
func TestRuleCache_BoundedReaders(t *testing.T) {
	c := newRuleCache()
	project := uuid.New()
	var leaves []func()
	for n := range maxTurns {
		of := uuid.New()
		if n == 0 {
			of = project
		}
		release, err := c.acquire(t.Context(), of)
		runtest.Must(t, err)
		leaves = append(leaves, release)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, of := range map[string]uuid.UUID{"the same project": project, "one project more": uuid.New()} {
		if _, err := c.acquire(gone, of); !errors.Is(err, context.Canceled) {
			t.Errorf("%s enters: %v", name, err)
		}
	}
	entered := make(chan error)
	go func() {
		release, err := c.acquire(t.Context(), project)
		if err == nil {
			release()
		}
		entered <- err
	}()
	for _, release := range leaves {
		release()
	}
	if err := <-entered; err != nil {
		t.Error(err)
	}
}

func TestRuleCache_LoadReadsOnce(t *testing.T) {
	c, project, reads := newRuleCache(), uuid.New(), 0
	read := func() (*audience.Matcher, error) { reads++; return &audience.Matcher{}, nil }
	for range 3 {
		if _, err := c.load(project, 3, read); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.load(project, 4, read); err != nil || reads != 2 {
		t.Errorf("%d reads as of two positions, %v", reads, err)
	}
	failed := errors.New("failed")
	if _, err := c.load(project, 5, func() (*audience.Matcher, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if _, kept := c.get(project, 5); kept {
		t.Error("what failed is kept")
	}
}
