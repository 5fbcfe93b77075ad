package datafolder

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sealed(b byte) []byte { return bytes.Repeat([]byte{b}, SecretBytes) }

func base64Of(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

func TestSealKeys_Generated(t *testing.T) {
	s := Folder{Dir: t.TempDir()}
	if known, err := s.KnownSealKeys(); err != nil || len(known) > 0 {
		t.Errorf("an empty folder has %x, %v", known, err)
	}
	drawn, err := s.NewSealKey()
	if err != nil || len(drawn) != SecretBytes {
		t.Fatalf("drawn %x, %v", drawn, err)
	}
	known, err := s.KnownSealKeys()
	if err != nil || len(known) != 1 || !bytes.Equal(known[0], drawn) {
		t.Errorf("the next start has %x, drawn was %x, %v", known, drawn, err)
	}
	info, err := os.Stat(filepath.Join(s.Dir, SealKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestSealKeys_ConfiguredComeFirst(t *testing.T) {
	s := Folder{Dir: t.TempDir()}
	drawn, err := s.NewSealKey()
	if err != nil {
		t.Fatal(err)
	}
	s.SealKey = base64Of(sealed(1)) + ", " + hex.EncodeToString(sealed(2)) + "," + base64Of(drawn)
	got, err := s.KnownSealKeys()
	if err != nil || len(got) != 3 || !bytes.Equal(got[0], sealed(1)) || !bytes.Equal(got[1], sealed(2)) ||
		!bytes.Equal(got[2], drawn) {
		t.Errorf("keys %x, %v", got, err)
	}
	s.SealKey = base64Of(sealed(1))
	if got, err = s.KnownSealKeys(); err != nil || len(got) != 2 || !bytes.Equal(got[1], drawn) {
		t.Errorf("keys %x, %v", got, err)
	}
}

func TestSealKeys_Unreadable(t *testing.T) {
	for _, text := range []string{
		"abcd", ",", base64Of(sealed(1)) + ",", base64Of(sealed(1)) + ",abcd",
		base64Of(make([]byte, 31)),
	} {
		if _, err := DecodeSecrets(text); err == nil || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, SealKeyFile), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Folder{Dir: dir}).KnownSealKeys(); err == nil || !strings.Contains(err.Error(), SealKeyFile) {
		t.Errorf("an empty file: %v", err)
	}
}
