package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/pquerna/otp/totp"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/internal/runtest"
)

// A person signs in with password and second factor, and tokens are valid, after a backup is restored, whether a server
// ran when it was made or not.
func TestSignIn_AfterARestore(t *testing.T) {
	unraced(t)
	h, _ := withOwner(t)
	h.postgres = Embedded
	h.start()
	password := h.credentials()[datafolder.OwnerPasswordName]
	in, err := h.signIn(ownerEmail, password)
	runtest.Must(t, err)
	session, _, err := h.signin.Session(t.Context(), in.Token)
	runtest.Must(t, err)
	e, err := h.signin.Enrol(in.Person, ownerEmail, "")
	runtest.Must(t, err)
	code, err := totp.GenerateCode(e.Secret, time.Now())
	runtest.Must(t, err)
	_, codes, err := h.signin.Confirm(t.Context(), session, signin.Attempt{}, e.Sealed, code)
	runtest.Must(t, err)
	claims := jwt.RegisteredClaims{
		Issuer: "i", Audience: jwt.ClaimStrings{"a"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}
	token, err := h.tokens.Sign(t.Context(), "at+jwt", claims)
	runtest.Must(t, err)
	online, offline := filepath.Join(t.TempDir(), "online"), filepath.Join(t.TempDir(), "offline")
	_, err = h.backups.Make(t.Context(), online)
	runtest.Must(t, err)
	h.stop()
	_, err = datafolder.Folder{Dir: h.dir}.BackupOffline(t.Context(), offline)
	runtest.Must(t, err)
	for _, backup := range []string{online, offline} {
		next, _ := withOwner(t)
		_, err = datafolder.Restore(t.Context(), backup, next.dir)
		runtest.Must(t, err)
		next.start()
		pending, err := next.signIn(ownerEmail, password)
		runtest.Must(t, err)
		if !pending.Pending {
			t.Errorf("%s: the second factor is gone", backup)
		}
		if _, err = next.signin.SecondFactor(t.Context(), pending.Token, codes[0], signin.Client{}); err != nil {
			t.Errorf("%s: %v", backup, err)
		}
		if err = next.tokens.Verify(t.Context(), token, "at+jwt", "i", "a", &claims); err != nil {
			t.Errorf("%s: %v", backup, err)
		}
		if _, err := os.Stat(filepath.Join(next.dir, datafolder.SignInsFile)); !os.IsNotExist(err) {
			t.Errorf("%s: the file stays: %v", backup, err)
		}
		next.stop()
	}
}
