package datapoints

import (
	"net/url"
	"testing"
	"time"
)

// A day that is typed is the day that the list shows: in the zone of the person, also where a day has 23 hours.
func TestFilterOf_Days(t *testing.T) {
	for _, c := range []struct{ zone, from, to, begins, ends string }{
		{"Asia/Tokyo", "2025-05-13", "2025-05-13", "2025-05-12T15:00:00Z", "2025-05-13T15:00:00Z"},
		{"Europe/Rome", "2025-03-30", "2025-03-30", "2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z"},
		{"UTC", "2025-05-13", "2025-05-13", "2025-05-13T00:00:00Z", "2025-05-14T00:00:00Z"},
		{"America/New_York", "2025-05-12T19:30", "2025-05-12T20:00", "2025-05-12T23:30:00Z", "2025-05-13T00:00:00Z"},
		{"Asia/Tokyo", "2025-05-12T23:30Z", "2025-05-13T01:30:00+02:00", "2025-05-12T23:30:00Z", "2025-05-12T23:30:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		f, err := filterOf(url.Values{"from": {c.from}, "to": {c.to}}, zone)
		if err != nil {
			t.Fatal(err)
		}
		got := [2]string{f.From.UTC().Format(time.RFC3339), f.To.UTC().Format(time.RFC3339)}
		if want := [2]string{c.begins, c.ends}; got != want {
			t.Errorf("%s to %s in %s is %s: want %s", c.from, c.to, c.zone, got, want)
		}
	}
	for _, text := range []string{"soon", "2025-13-01", "9999-12-31"} {
		if _, err := filterOf(url.Values{"to": {text}}, time.FixedZone("west", -3600)); err == nil && text != "9999-12-31" {
			t.Errorf("%s is read", text)
		} else if err != nil && text == "9999-12-31" {
			t.Errorf("the last day: %v", err)
		}
	}
}
