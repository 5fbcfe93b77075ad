package doctor

import (
	"bytes"
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
)

// checkKeys reports keys that are missing, unreadable or open to others. It compares none with the log.
func (e *examination) checkKeys() {
	data := e.Service.Data
	key, err := data.ReadHashKey()
	switch {
	case err != nil:
		e.broken("keys", "restore it from a backup; a log opens only with its key", "%v", err)
	case key == nil && !data.IsNew():
		e.broken("keys", "restore hash.key from a backup, or set ANNALS_HASH_KEY: the log opens only with its key",
			"%s has no hash key", data.Dir)
	case data.HashKey != "" && e.differs(key):
		e.broken("keys", "unset ANNALS_HASH_KEY if the log was written with the file, else move the file away",
			"ANNALS_HASH_KEY is not the key in %s", filepath.Join(data.Dir, datafolder.HashKeyFile))
	default:
		e.ok("keys", "the hash key can be read")
	}
	if _, err := data.KnownSealKeys(); err != nil {
		e.broken("keys", "restore it from a backup (deploy/RUNBOOK.md#seal-keys)", "the seal keys cannot be read: %v", err)
	}
	for _, name := range []string{datafolder.HashKeyFile, datafolder.SealKeyFile, datafolder.CredentialsFile} {
		path := filepath.Join(data.Dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&othersMode != 0 {
			e.broken("keys", "chmod 600 "+path, "other users of this machine may read %s (mode %#o)", path, info.Mode().Perm())
		}
	}
}

// differs reports whether the file of the folder holds another hash key than the one in the settings.
func (e *examination) differs(key []byte) bool {
	stored, err := datafolder.Folder{Dir: e.Service.Data.Dir}.ReadHashKey()
	return err == nil && stored != nil && !bytes.Equal(stored, key)
}

// expiresSoon is how long before its end a certificate is noted.
const expiresSoon = 14 * 24 * time.Hour

// checkCertificate reports a certificate that callers would refuse.
func (e *examination) checkCertificate() {
	if e.Service.TLSCert == "" {
		return
	}
	const check, renew = "keys", "renew it; the service reads both files again when they change"
	pair, err := tls.LoadX509KeyPair(e.Service.TLSCert, e.Service.TLSKey)
	if err != nil {
		e.broken(check, "name a certificate and its key with ANNALS_TLS_CERT and ANNALS_TLS_KEY",
			"%s and %s cannot be used: %v", e.Service.TLSCert, e.Service.TLSKey, err)
		return
	}
	end, now := pair.Leaf.NotAfter, e.Now()
	until := end.UTC().Format(time.RFC3339)
	switch {
	case now.After(end):
		e.broken(check, renew, "the certificate %s ended at %s", e.Service.TLSCert, until)
	case now.Before(pair.Leaf.NotBefore):
		e.broken("clock", clockRemedy, "the certificate %s begins only at %s", e.Service.TLSCert,
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	case end.Sub(now) < expiresSoon:
		e.note(check, renew, "the certificate %s ends at %s", e.Service.TLSCert, until)
	default:
		e.ok(check, "the certificate is valid until %s", until)
	}
	if u, err := url.Parse(e.Service.URLs.API); err == nil && e.Service.URLs.API != "" {
		if err := pair.Leaf.VerifyHostname(u.Hostname()); err != nil {
			e.broken(check, "get one for that name, or correct ANNALS_API_URL",
				"the certificate does not fit ANNALS_API_URL: %v", err)
		}
	}
}
