package signin

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// A seal key that is replaced can be given up: second factors and open links work without it.
func TestSealedTables_WhoseKeyIsReplaced(t *testing.T) {
	s := newScene(t)
	e, _ := s.enrolled()
	token, err := s.NewLink(t.Context(), Link{Person: s.ana, Email: anasMail, Purpose: Reset})
	runtest.Must(t, err)
	fresh := []byte(strings.Repeat("n", secret.SealKeyBytes))
	both, err := secret.NewSealer(fresh, []byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	for _, table := range SealedTables() {
		if done, unopened, err := table.Reseal(t.Context(), s.DB, both); done != 1 || unopened != 0 || err != nil {
			t.Errorf("%s: %d values are sealed again, %d are not, %v", table.Name, done, unopened, err)
		}
	}
	s.Sealer, err = secret.NewSealer(fresh)
	runtest.Must(t, err)
	if _, err := s.NewRecoveryCodes(t.Context(), s.ana, s.code(e)); err != nil {
		t.Errorf("the second factor does not open: %v", err)
	}
	if l, ok, err := s.Link(t.Context(), token); err != nil || !ok || l.Email != anasMail {
		t.Errorf("the link does not open: %+v, %t, %v", l, ok, err)
	}
}
