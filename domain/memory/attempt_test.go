package memory_test

import (
	"testing"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/memory"
)

func TestNextAttempt_AfterTheLastEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		last            event.Event
		revision, round int
		number          int
		ended           bool
	}{
		"no event":                            {revision: 1, number: 1},
		"started":                             {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 1, number: 3},
		"started in an earlier round":         {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 1, round: 1, number: 1},
		"an earlier revision started":         {last: &memory.DerivationStarted{Revision: 1, Attempt: 2}, revision: 2, number: 1},
		"a later revision started":            {last: &memory.DerivationStarted{Revision: 2, Attempt: 1}, revision: 1, number: 1, ended: true},
		"a later revision started, a retry":   {last: &memory.DerivationStarted{Revision: 2, Attempt: 1}, revision: 1, round: 1, number: 1},
		"failed for now":                      {last: &memory.Failed{Revision: 1, Attempt: 1}, revision: 1, number: 2},
		"failed for good":                     {last: &memory.Failed{Revision: 1, Attempt: 3, Final: true}, revision: 1, number: 4, ended: true},
		"failed for good in an earlier round": {last: &memory.Failed{Revision: 1, Attempt: 3, Final: true}, revision: 1, round: 1, number: 1},
		"a later revision failed":             {last: &memory.Failed{Revision: 2, Attempt: 3, Final: true}, revision: 1, number: 1, ended: true},
		"derived":                             {last: &memory.Derived{Revision: 1}, revision: 1, number: 1, ended: true},
		"derived, a retry":                    {last: &memory.Derived{Revision: 1}, revision: 1, round: 1, number: 1, ended: true},
		"an earlier revision derived":         {last: &memory.Derived{Revision: 1}, revision: 2, number: 1},
		"a later revision derived":            {last: &memory.Derived{Revision: 2}, revision: 1, number: 1, ended: true},
		"a later revision derived, a retry":   {last: &memory.Derived{Revision: 2}, revision: 1, round: 1, number: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if number, ended := memory.NextAttempt(tt.last, tt.revision, tt.round); number != tt.number || ended != tt.ended {
				t.Errorf("attempt %d, ended %t, want %d, %t", number, ended, tt.number, tt.ended)
			}
		})
	}
}
