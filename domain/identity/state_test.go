package identity_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
)

// traitsOf is n traits of so many bytes together, keys included.
func traitsOf(n, bytes int) map[string]string {
	traits := make(map[string]string, n)
	for i := range n {
		size := bytes/n - len(fmt.Sprintf("%06d", i))
		if i == 0 {
			size += bytes % n
		}
		traits[fmt.Sprintf("%06d", i)] = strings.Repeat("x", size)
	}
	return traits
}

func TestCheckTraits_Limits(t *testing.T) {
	for name, c := range map[string]struct {
		before, after map[string]string
		ok            bool
	}{
		"none":                       {nil, nil, true},
		"1,000":                      {nil, traitsOf(1000, 10_000), true},
		"1,001":                      {nil, traitsOf(1001, 10_010), false},
		"512 KiB":                    {nil, traitsOf(300, 512<<10), true},
		"512 KiB and a byte":         {nil, traitsOf(300, 512<<10+1), false},
		"stored beyond, as many":     {traitsOf(2000, 20_000), traitsOf(2000, 19_000), true},
		"stored beyond, fewer":       {traitsOf(2000, 20_000), traitsOf(1999, 20_000), true},
		"stored beyond, more":        {traitsOf(2000, 20_000), traitsOf(2001, 20_010), false},
		"stored bigger, as big":      {traitsOf(500, 800_000), traitsOf(501, 800_000), true},
		"stored bigger, bigger":      {traitsOf(500, 800_000), traitsOf(500, 800_001), false},
		"stored bigger, within soon": {traitsOf(500, 800_000), traitsOf(500, 512<<10), true},
	} {
		err := identity.CheckTraits(c.before, c.after)
		if f, is := errors.AsType[*fault.Error](err); (err == nil) != c.ok ||
			!c.ok && (!is || f.Code != fault.CodeTraitsInvalid || f.Kind != fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
