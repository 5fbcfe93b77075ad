package requestlog

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

func TestSegments_CoverTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		from := time.UnixMicro(epoch + rapid.Int64Range(0, int64(40*24*time.Hour/time.Microsecond)).Draw(t, "from")).UTC()
		length := rapid.Int64Range(0, int64(MaxRange/time.Microsecond)).Draw(t, "length")
		to := from.Add(time.Duration(length) * time.Microsecond)
		most := rapid.SampledFrom(steps).Draw(t, "most")
		at, before := from, step(0)
		rising := true
		for i, s := range segmentsOf(from, to, most) {
			if !s.from.Equal(at) || !s.from.Before(s.to) || s.step > most {
				t.Fatalf("segment %d is %v, want one from %s", i, s, at)
			}
			if s.step > 0 && (!s.step.floor(s.from).Equal(s.from) || !s.step.floor(s.to).Equal(s.to)) {
				t.Fatalf("segment %v does not begin and end at its step", s)
			}
			if i > 0 && s.step <= before {
				rising = false
			} else if i > 0 && !rising {
				t.Fatalf("steps rise again at %v", s)
			}
			at, before = s.to, s.step
		}
		if !at.Equal(to) {
			t.Fatalf("segments end at %s, want %s", at, to)
		}
	})
}

func TestBucket_AtMostAHundred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "from")).UTC()
		to := from.Add(time.Duration(rapid.Int64Range(1, int64(MaxRange)).Draw(t, "length")))
		b := bucketOf(from, to)
		n := (to.Sub(b.floor(from)) + b.duration() - 1) / b.duration()
		if n > maxBuckets {
			t.Fatalf("%d buckets of %d minutes", n, b)
		}
	})
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	if b := bucketOf(day, day.AddDate(0, 0, 1)); b != 15 {
		t.Errorf("a day has buckets of %d minutes, want 15", b)
	}
}

func TestPack_RoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, packFrom - 1, packFrom, MaxBody} {
		for _, fill := range []byte{'a', 0} {
			body := make([]byte, n)
			for i := range body {
				body[i] = fill + byte(i%7)
			}
			got, err := unpack(pack(body))
			if err != nil || string(got) != string(body) {
				t.Errorf("%d bytes came back as %d, %v", n, len(got), err)
			}
		}
	}
	if n := len(pack(make([]byte, MaxBody))); n > 1000 {
		t.Errorf("a body of zeros takes %d bytes", n)
	}
	if _, err := unpack([]byte{9}); err == nil {
		t.Error("an unknown encoding was read")
	}
}
