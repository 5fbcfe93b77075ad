package main

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

func TestASealKeyIsDrawnOnce(t *testing.T) {
	s := &Settings{DataDir: t.TempDir()}
	first, err := sealKeys(s)
	if err != nil || len(first) != 1 || len(first[0]) != SecretBytes {
		t.Fatalf("drawn %x, %v", first, err)
	}
	second, err := sealKeys(s)
	if err != nil || len(second) != 1 || !bytes.Equal(first[0], second[0]) {
		t.Errorf("a second start has %x, the first had %x, %v", second, first, err)
	}
	info, err := os.Stat(filepath.Join(s.DataDir, sealKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestSetSealKeysComeBeforeTheDrawnOne(t *testing.T) {
	s := &Settings{DataDir: t.TempDir()}
	drawn, err := sealKeys(s)
	if err != nil {
		t.Fatal(err)
	}
	s.SealKey = base64Of(sealed(1)) + ", " + hex.EncodeToString(sealed(2)) + "," + base64Of(drawn[0])
	got, err := sealKeys(s)
	if err != nil || len(got) != 3 || !bytes.Equal(got[0], sealed(1)) || !bytes.Equal(got[1], sealed(2)) || !bytes.Equal(got[2], drawn[0]) {
		t.Errorf("keys %x, %v", got, err)
	}
	s.SealKey = base64Of(sealed(1))
	if got, err = sealKeys(s); err != nil || len(got) != 2 || !bytes.Equal(got[1], drawn[0]) {
		t.Errorf("keys %x, %v", got, err)
	}
	empty := &Settings{DataDir: t.TempDir(), SealKey: base64Of(sealed(1))}
	if got, err = sealKeys(empty); err != nil || len(got) != 1 {
		t.Errorf("keys %x, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(empty.DataDir, sealKeyFile)); err == nil {
		t.Error("one was drawn although one is set")
	}
}

func TestSealKeysThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"abcd", ",", base64Of(sealed(1)) + ",", base64Of(sealed(1)) + ",abcd", base64Of(make([]byte, 31))} {
		if _, err := decodeSecrets(text); err == nil || !strings.Contains(err.Error(), "openssl rand") {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, sealKeyFile), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sealKeys(&Settings{DataDir: dir}); err == nil || !strings.Contains(err.Error(), sealKeyFile) {
		t.Errorf("an empty file: %v", err)
	}
}
