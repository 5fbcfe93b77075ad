package event_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

const (
	zeroSalt = `AAAAAAAAAAAAAAAAAAAAAA==`
	oneSalt  = `AQIDBAUGBwgJCgsMDQ4PEA==`
)

var counted = [event.SaltSize]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func TestSplitSalt(t *testing.T) {
	for name, c := range map[string]struct {
		meta, rest string
		salt       [event.SaltSize]byte
	}{
		"one member":             {`{"a":1,"salt":"` + oneSalt + `"}`, `{"a":1}`, counted},
		"zeros":                  {`{"a":1,"salt":"` + zeroSalt + `"}`, `{"a":1}`, [event.SaltSize]byte{}},
		"spaces stay":            {`{ "a" : 1 ,"salt":"` + oneSalt + `"}`, `{ "a" : 1 }`, counted},
		"another salt before it": {`{"salt":"x","salt":"` + oneSalt + `"}`, `{"salt":"x"}`, counted},
		"a salt in a string": {
			`{"a":",\"salt\":\"` + zeroSalt + `\"}","salt":"` + oneSalt + `"}`, `{"a":",\"salt\":\"` + zeroSalt + `\"}"}`, counted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rest, salt, err := event.SplitSalt([]byte(c.meta))
			if err != nil || string(rest) != c.rest || salt != c.salt {
				t.Errorf("%s and %x, %v", rest, salt, err)
			}
			if again := event.WithSalt([]byte(c.rest), c.salt); string(again) != c.meta {
				t.Errorf("with the salt again: %s", again)
			}
		})
	}
}

func TestSplitSalt_Hostile(t *testing.T) {
	for name, meta := range map[string]string{
		"nothing":                 ``,
		"no object":               `[1,"salt":"` + oneSalt + `"}`,
		"an array":                `["a","salt"]`,
		"no member":               `{}`,
		"the only member":         `{"salt":"` + oneSalt + `"}`,
		"the suffix alone":        `,"salt":"` + oneSalt + `"}`,
		"cut off":                 `{"a":"x,"salt":"` + oneSalt + `"}`,
		"not the last member":     `{"a":1,"salt":"` + oneSalt + `","b":2}`,
		"in an object of its own": `{"a":{"b":1,"salt":"` + oneSalt + `"}}`,
		"in a string":             `{"a":",\"salt\":\"` + oneSalt + `"}`,
		"a space before it":       `{"a":1, "salt":"` + oneSalt + `"}`,
		"a space after it":        `{"a":1,"salt":"` + oneSalt + `" }`,
		"a line after it":         `{"a":1,"salt":"` + oneSalt + `"}` + "\n",
		"a short salt":            `{"a":1,"salt":"AQIDBAUGBwgJCgsMDQ4P"}`,
		"a long salt":             `{"a":1,"salt":"AQIDBAUGBwgJCgsMDQ4PEBES"}`,
		"a text of no salt":       `{"a":1,"salt":"AQIDBAUGBwgJCgsMDQ4PE!=="}`,
		"a line in the text":      `{"a":1,"salt":"AQIDBAUGBwgJCgsMDQ4P\n=="}`,
		"a second text of a salt": `{"a":1,"salt":"AQIDBAUGBwgJCgsMDQ4PEB=="}`,
		"not a string":            `{"a":1,"salt":[1,2,3,4,5,6,7,8,9,1,2,3]}`,
		"another name":            `{"a":1,"Salt":"` + oneSalt + `"}`,
		"two values":              `{}{"a":1,"salt":"` + oneSalt + `"}`,
	} {
		if rest, salt, err := event.SplitSalt([]byte(meta)); err == nil {
			t.Errorf("%s: split into %s and %x", name, rest, salt)
		}
	}
}

// TestSplitSalt_UndoesWithSalt draws objects with any members: the salt is cut out to the byte.
func TestSplitSalt_UndoesWithSalt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.MapOfN(rapid.String(), rapid.OneOf(rapid.String().AsAny(), rapid.Int().AsAny()), 1, 5).Draw(t, "members")
		meta, err := json.Marshal(members)
		runtest.Must(t, err)
		salt := [event.SaltSize]byte(rapid.SliceOfN(rapid.Byte(), event.SaltSize, event.SaltSize).Draw(t, "salt"))
		salted := event.WithSalt(meta, salt)
		rest, got, err := event.SplitSalt(salted)
		if err != nil || !bytes.Equal(rest, meta) || got != salt || !json.Valid(rest) {
			t.Fatalf("%s is split into %s and %x, %v", salted, rest, got, err)
		}
	})
}

// TestSplitSalt_AnyBytes changes salted metadata anywhere: what is split is what these bytes are made of.
func TestSplitSalt_AnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		meta := event.WithSalt([]byte(`{"a":"b","schema":1}`), counted)
		if rapid.Bool().Draw(t, "any") {
			meta = rapid.SliceOf(rapid.Byte()).Draw(t, "meta")
		} else {
			at := rapid.IntRange(0, len(meta)-1).Draw(t, "at")
			meta[at] = rapid.Byte().Draw(t, "byte")
		}
		before := bytes.Clone(meta)
		rest, salt, err := event.SplitSalt(meta)
		if !bytes.Equal(meta, before) {
			t.Fatal("the metadata was changed")
		}
		if err == nil && !bytes.Equal(event.WithSalt(rest, salt), meta) {
			t.Fatalf("%s is split into %s and %x", meta, rest, salt)
		}
	})
}
