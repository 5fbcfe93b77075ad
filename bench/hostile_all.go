package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/annals-project/annals/internal/bench/hostile"
)

// HostileNames are the names of all attacks.
func HostileNames() (names []string) {
	for _, attack := range hostile.Attacks() {
		names = append(names, attack.Name)
	}
	return append(names, SilentName)
}

// HostileAll runs the named attacks, or all of them, one after the other, and writes their results. missed are those
// whose bounds were exceeded.
func HostileAll(ctx context.Context, opts HostileOptions, names []string, to io.Writer) (missed []string, err error) {
	runs := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, attack := range hostile.Attacks() {
		if !runs(attack.Name) {
			continue
		}
		result, err := Hostile(ctx, opts, attack)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", attack.Name, err)
		}
		if err := result.Write(to); err != nil {
			return missed, fmt.Errorf("write result: %w", err)
		}
		if len(result.Missed()) > 0 {
			missed = append(missed, attack.Name)
		}
	}
	if !runs(SilentName) {
		return missed, nil
	}
	heard, err := Silent(ctx, opts)
	for _, h := range heard {
		err = errors.Join(err, h.Write(to))
		if len(h.Missed()) > 0 {
			missed = append(missed, SilentName+" at "+h.Attacked)
		}
	}
	if err != nil {
		return missed, fmt.Errorf("%s: %w", SilentName, err)
	}
	return missed, nil
}
