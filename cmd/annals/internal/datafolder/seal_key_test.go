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

func TestSealKeys_GeneratedOnce(t *testing.T) {
	s := Folder{Dir: t.TempDir()}
	first, err := s.SealKeys()
	if err != nil || len(first) != 1 || len(first[0]) != SecretBytes {
		t.Fatalf("drawn %x, %v", first, err)
	}
	second, err := s.SealKeys()
	if err != nil || len(second) != 1 || !bytes.Equal(first[0], second[0]) {
		t.Errorf("a second start has %x, the first had %x, %v", second, first, err)
	}
	info, err := os.Stat(filepath.Join(s.Dir, SealKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestSealKeys_ConfiguredComeFirst(t *testing.T) {
	s := Folder{Dir: t.TempDir()}
	drawn, err := s.SealKeys()
	if err != nil {
		t.Fatal(err)
	}
	s.SealKey = base64Of(sealed(1)) + ", " + hex.EncodeToString(sealed(2)) + "," + base64Of(drawn[0])
	got, err := s.SealKeys()
	if err != nil || len(got) != 3 || !bytes.Equal(got[0], sealed(1)) || !bytes.Equal(got[1], sealed(2)) ||
		!bytes.Equal(got[2], drawn[0]) {
		t.Errorf("keys %x, %v", got, err)
	}
	s.SealKey = base64Of(sealed(1))
	if got, err = s.SealKeys(); err != nil || len(got) != 2 || !bytes.Equal(got[1], drawn[0]) {
		t.Errorf("keys %x, %v", got, err)
	}
	empty := Folder{Dir: t.TempDir(), SealKey: base64Of(sealed(1))}
	if got, err = empty.SealKeys(); err != nil || len(got) != 1 {
		t.Errorf("keys %x, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(empty.Dir, SealKeyFile)); err == nil {
		t.Error("one was drawn although one is set")
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
	if _, err := (Folder{Dir: dir}).SealKeys(); err == nil || !strings.Contains(err.Error(), SealKeyFile) {
		t.Errorf("an empty file: %v", err)
	}
}
