package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

// A process of each role is refused with another seal key. One that seals nothing may have none.
func TestServer_SealKeyByRole(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.stop()
	file := filepath.Join(h.dir, datafolder.SealKeyFile)
	runtest.Must(t, os.Remove(file))
	other := datafolder.EncodeSecrets([][]byte{bytes.Repeat([]byte{7}, datafolder.SecretBytes)})
	for _, role := range []string{"write", "read", "projector", "pipeline", "console"} {
		for key, needed := range map[string]bool{other: true, "": role == "write" || role == "console"} {
			cfg := h.config()
			cfg.Roles = Roles{Role(role)}
			cfg.Data.SealKey = key
			s, err := New(t.Context(), cfg)
			if err == nil {
				runtest.Must(t, s.Close())
			}
			if _, refused := errors.AsType[*secret.SealKeyError](err); refused != needed || !refused && err != nil {
				t.Errorf("role %s with the key %.4q: %v", role, key, err)
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("role %s made a seal key, %v", role, err)
			}
		}
	}
	cfg := h.config()
	cfg.Data.SealKey = other
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "annals seal-key accept-loss") {
		t.Errorf("all roles with another key: %v", err)
	}
}
