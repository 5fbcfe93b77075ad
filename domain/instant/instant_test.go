package instant_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/instant"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		// Dates.
		{"2025-06-03", "2025-06-03T00:00:00Z"},
		{"20250603", "2025-06-03T00:00:00Z"},
		{"2024-02-29", "2024-02-29T00:00:00Z"},
		{"0001-01-01", "0001-01-01T00:00:00Z"},
		{"9999-12-31", "9999-12-31T00:00:00Z"},
		{"2025-154", "2025-06-03T00:00:00Z"},
		{"2025154", "2025-06-03T00:00:00Z"},
		{"2024-366", "2024-12-31T00:00:00Z"},
		{"2025-W23-2", "2025-06-03T00:00:00Z"},
		{"2025W232", "2025-06-03T00:00:00Z"},
		{"2020-W53-7", "2021-01-03T00:00:00Z"},
		{"2009-W01-1", "2008-12-29T00:00:00Z"},
		// Times and their separators.
		{"2025-06-03T10:15:30Z", "2025-06-03T10:15:30Z"},
		{"2025-06-03t10:15:30z", "2025-06-03T10:15:30Z"},
		{"2025-06-03 10:15:30", "2025-06-03T10:15:30Z"},
		{"2025-06-03T10:15", "2025-06-03T10:15:00Z"},
		{"2025-06-03T10", "2025-06-03T10:00:00Z"},
		{"20250603T101530Z", "2025-06-03T10:15:30Z"},
		{"20250603T1015Z", "2025-06-03T10:15:00Z"},
		{"20250603T10Z", "2025-06-03T10:00:00Z"},
		{"2025-06-03T101530", "2025-06-03T10:15:30Z"},
		{"20250603T10:15:30+0200", "2025-06-03T08:15:30Z"},
		{"2025-W23-2T10:15Z", "2025-06-03T10:15:00Z"},
		{"2025-154T10:15Z", "2025-06-03T10:15:00Z"},
		// Fractions: cut, never rounded.
		{"2025-06-03T10:15:30.5Z", "2025-06-03T10:15:30.5Z"},
		{"2025-06-03T10:15:30,5Z", "2025-06-03T10:15:30.5Z"},
		{"2025-06-03T10:15:30.123456789Z", "2025-06-03T10:15:30.123456Z"},
		{"2025-06-03T10:15:30.9999999Z", "2025-06-03T10:15:30.999999Z"},
		{"2025-06-03T10:15:30." + strings.Repeat("9", 500), "2025-06-03T10:15:30.999999Z"},
		{"2025-06-03T10:15.5", "2025-06-03T10:15:30Z"},
		{"2025-06-03T10,25", "2025-06-03T10:15:00Z"},
		{"2025-06-03T10." + strings.Repeat("3", 40), "2025-06-03T10:19:59.999999Z"},
		// Offsets.
		{"2025-06-03T10:15:30+02:00", "2025-06-03T08:15:30Z"},
		{"2025-06-03T10:15:30+02", "2025-06-03T08:15:30Z"},
		{"2025-06-03T10:15:30-0930", "2025-06-03T19:45:30Z"},
		{"2025-06-03T10:15:30−09:30", "2025-06-03T19:45:30Z"},
		{"2025-06-03T10+05:45", "2025-06-03T04:15:00Z"},
		{"2025-06-03T10:15:30-00:00", "2025-06-03T10:15:30Z"},
		{"2025-06-03T10:15:30+23:59", "2025-06-02T10:16:30Z"},
		{"2025-06-03 10:15:30 UTC", "2025-06-03T10:15:30Z"},
		{"2025-06-03 10:15:30 GMT", "2025-06-03T10:15:30Z"},
		{"2025-06-03 10:15:30 Z", "2025-06-03T10:15:30Z"},
		{"2025-06-03 10:15:30 +0200", "2025-06-03T08:15:30Z"},
		{"2025-06-03T10:15:30.25 -09:30", "2025-06-03T19:45:30.25Z"},
		// Ends of days.
		{"2025-06-03T24:00", "2025-06-04T00:00:00Z"},
		{"2025-06-03T24:00:00.000Z", "2025-06-04T00:00:00Z"},
		{"2025-12-31T24", "2026-01-01T00:00:00Z"},
		{"2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"},
		{"2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.25Z"},
		{"2017-01-01T05:29:60+05:30", "2017-01-01T00:00:00Z"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := instant.Parse(tc.in)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if text := got.Format(time.RFC3339Nano); text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
			if got.Location() != time.UTC {
				t.Errorf("location is %v", got.Location())
			}
		})
	}
}

func TestRead(t *testing.T) {
	const day = "2025-06-03T00:00:00Z"
	for _, c := range []struct{ in, at, end, last string }{
		{"2025-06-03", day, "2025-06-04T00:00:00Z", "2025-06-03T23:59:59.999999Z"},
		{"2025W232", day, "2025-06-04T00:00:00Z", "2025-06-03T23:59:59.999999Z"},
		{"9999-12-31", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"},
		{"2025-06-03T00", day, day, day},
		{"2025-06-03T00:00:00Z", day, day, day},
		{"2025-06-03T00:00+00:00", day, day, day},
		{"2025-05-12T23:30:00-07:00", "2025-05-12T23:30:00-07:00", "2025-05-12T23:30:00-07:00", "2025-05-12T23:30:00-07:00"},
		{"2025-05-12T24:00-0730", "2025-05-13T00:00:00-07:30", "2025-05-13T00:00:00-07:30", "2025-05-13T00:00:00-07:30"},
	} {
		w, err := instant.Read(c.in)
		runtest.Must(t, err)
		got := [3]string{w.At.Format(time.RFC3339Nano), w.End().Format(time.RFC3339Nano), w.Last().Format(time.RFC3339Nano)}
		if want := [3]string{c.at, c.end, c.last}; got != want {
			t.Errorf("%s: got %s, want %s", c.in, got, want)
		}
	}
}

func TestParse_Refusals(t *testing.T) {
	for _, in := range []string{
		"", " ", "now", "tomorrow", "T", "Z", "1748945730", "2025", "2025-06", "202506", "25-06-03", "02025-06-03", "+2025-06-03", "-2025-06-03",
		"0000-01-01", "10000-01-01", "2025-6-3", "2025-06-3", "2025-06-031", "2025-0603", "202506-03", "2025/06/03", "03.06.2025", "June 3, 2025",
		"2025-13-01", "2025-00-01", "2025-06-00", "2025-06-31", "2025-02-29", "1900-02-29", "2025-000", "2025-366", "2025-W00-1", "2025-W54-1", "2025-W53-1", "2025-W23-0",
		"2025-W23-8", "2025-W23", "2025W23", "2025-06-03T", "2025-06-03T1", "2025-06-03T1:15", "2025-06-03T10:1", "2025-06-03T10:15:3", "2025-06-03T10:15:300",
		"2025-06-03T25:00", "2025-06-03T10:60", "2025-06-03T10:15:61", "2025-06-03T24:00:01", "2025-06-03T24:01", "2025-06-03T24:00:00.5", "2025-06-03T10:15:60Z",
		"2016-12-31T23:59:60+01:00", "2025-06-03T24:00:60", "2025-06-03T10:15:30.", "2025-06-03T10:15:30.Z", "2025-06-03T10:15:30,Z", "2025-06-03T10:15:30  Z", "2025-06-03T10:15:30 ", "2025-06-03T10:15:30 CET", "2025-06-03T10:15:30 UTC+2",
		"2025-06-03T10:15:30 02:00", "2025-06-03 UTC", "2025-06-03T10:15:30 utc ", "2025-06-03  10:15",
		"2025-06-03T10:15:30+", "2025-06-03T10:15:30+2", "2025-06-03T10:15:30+2:00", "2025-06-03T10:15:30+24:00", "2025-06-03T10:15:30+02:60", "2025-06-03T10:15:30+02:", "2025-06-03T10:15:30+02:00:00",
		"2025-06-03T10:15:30UTC", "2025-06-03T10:15:30 Europe/Berlin", "2025-06-03Z", "2025-06-03+02:00", " 2025-06-03", "2025-06-03 ", "2025-06-03\n", "2025-06-03/2025-06-04", "P1D",
		"٢٠٢٥-٠٦-٠٣", "2025-06-03T10:15:30Z\x00", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T24:00",
	} {
		if got, err := instant.Parse(in); err == nil {
			t.Errorf("%q was read as %s", in, got.Format(time.RFC3339Nano))
		}
	}
}

func TestTruncate(t *testing.T) {
	berlin := time.FixedZone("", 2*3600)
	got := instant.Truncate(time.Date(2025, 6, 3, 10, 15, 30, 123456789, berlin))
	if want := time.Date(2025, 6, 3, 8, 15, 30, 123456000, time.UTC); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := instant.Truncate(time.Now()); got != got.Round(0) {
		t.Error("the monotonic reading was kept")
	}
}

// Whatever the standard library writes in RFC 3339 is read as the same instant.
func TestParse_Formatted(t *testing.T) {
	first, last := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC).Unix()
	rapid.Check(t, func(t *rapid.T) {
		zone := time.FixedZone("", rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "offset")*60)
		at := time.Unix(rapid.Int64Range(first, last).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).
			In(zone)
		layouts := []string{
			time.RFC3339Nano,
			"20060102T150405.999999999Z0700",
			"2006-01-02 15:04:05,000000000Z07:00",
			"2006-002T15:04:05.999999999Z07:00",
		}
		text := at.Format(rapid.SampledFrom(layouts).Draw(t, "layout"))
		got, err := instant.Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if want := instant.Truncate(at); got != want {
			t.Fatalf("%q: got %v, want %v", text, got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"2025-06-03T10:15:30.5+02:00", "2025W232T24", "2025154 10,5Z", "2016-12-31T23:59:60Z", "9999-12-31T23:59:59-23:59", "2025-06-03T10:15:30−09"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := instant.Parse(in)
		if err != nil {
			if !got.IsZero() {
				t.Errorf("%q: an error with a time", in)
			}
			return
		}
		if got != instant.Truncate(got) || got.Year() < 1 || got.Year() > 9999 {
			t.Errorf("%q: %v is out of range or precision", in, got)
		}
		again, err := instant.Parse(got.Format(time.RFC3339Nano))
		if err != nil || again != got {
			t.Errorf("%q: read as %v, written and read again as %v (%v)", in, got, again, err)
		}
		if std, err := time.Parse(time.RFC3339Nano, in); err == nil && instant.Truncate(std) != got {
			t.Errorf("%q: got %v, the standard library reads %v", in, got, std)
		}
	})
}

func TestParseMail(t *testing.T) {
	const want = "2025-06-03T08:15:30Z"
	for _, in := range []string{
		"Tue, 3 Jun 2025 10:15:30 +0200", "Tue, 03 Jun 2025 08:15:30 GMT", "3 Jun 2025 08:15:30 UT", "3 Jun 25 04:15:30 EDT",
		"Tue, 3 Jun 2025 10:15:30 +0200 (CEST)", "Tue, 03 Jun 2025 00:15:30 -0800", "Tue, 3 Jun 2025 08:15:30 utc",
	} {
		if at, err := instant.ParseMail(in); err != nil || at.Format(time.RFC3339Nano) != want {
			t.Errorf("%q is %v, %v", in, at, err)
		}
	}
	for _, in := range []string{
		"", "Tue", "Tue, 3 Jun 2025", "Tue, 3 Jun 2025 10:15:30", "Tue, 3 Jun 2025 10:15:30 CEST", "Tue, 3 Jun 2025 10:15:30 X",
		"Tue, 31 Jun 2025 10:15:30 +0200", "Tue, 3 Jun 2025 10:15:30 +0200 (CEST", "Tue, 3 Jun 2025 10:15:30 +2460", "3 Juni 2025 10:15:30 +0200",
	} {
		if at, err := instant.ParseMail(in); err == nil {
			t.Errorf("%q is %v", in, at)
		}
	}
}
