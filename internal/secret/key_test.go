package secret

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"testing/iotest"
)

func TestKey_Form(t *testing.T) {
	for prefix, draw := range map[string]func() (Key, error){
		ProjectKeyPrefix: NewProjectKey, ManagementKeyPrefix: NewManagementKey,
	} {
		form := regexp.MustCompile("^" + prefix + "[0-9A-Za-z]{40}$")
		seen := map[string]bool{}
		used := map[rune]bool{}
		for range 500 {
			k, err := draw()
			if err != nil {
				t.Fatal(err)
			}
			if !form.MatchString(k.Clear) || seen[k.Clear] {
				t.Fatalf("key %q", k.Clear)
			}
			seen[k.Clear] = true
			for _, c := range k.Clear[len(prefix):] {
				used[c] = true
			}
			if k.Hash != HashText(k.Clear) || k.Prefix != k.Clear[:11] || k.Suffix != k.Clear[43:] {
				t.Fatalf("parts of %+v", k)
			}
		}
		if len(used) != 62 {
			t.Errorf("%d characters are used, want 62", len(used))
		}
	}
}

func TestKey_UniformCharacters(t *testing.T) {
	// Every byte once, as often as a key needs: each character comes from equally many bytes.
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	count := map[byte]int{}
	source := bytes.NewReader(bytes.Repeat(all, 5))
	for range 31 {
		k, err := newKey(source, "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(k.Clear) {
			count[k.Clear[i]]++
		}
	}
	for c, n := range count {
		if n != 20 {
			t.Errorf("%c is drawn %d times of 1240, want 20", c, n)
		}
	}
}

func TestKey_NoRandomness(t *testing.T) {
	broken := errors.New("no entropy")
	if k, err := newKey(iotest.ErrReader(broken), ProjectKeyPrefix); !errors.Is(err, broken) || k != (Key{}) {
		t.Errorf("key %+v, error %v", k, err)
	}
}

func TestHint_ShortValues(t *testing.T) {
	if k := Describe("svc_sk_short"); k.Prefix != "" || k.Suffix != "" || k.Hash == "" {
		t.Errorf("%+v", k)
	}
}

func TestHash_Values(t *testing.T) {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := HashText("abc"); got != abc {
		t.Errorf("hash %s", got)
	}
	if a, again, b := Hash("a"), Hash("a"), Hash("b"); a != again || a == b {
		t.Error("equal is wrong")
	}
}
