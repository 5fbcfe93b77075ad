package elastic

import (
	"testing"
	"time"
)

func TestIndexBreaker_RefusesAfterFailuresAndTriesAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b breaker
	for range breakerLimit - 1 {
		if !b.allow(now) {
			t.Fatal("refused before the limit")
		}
		b.failed(now)
	}
	if !b.allow(now) {
		t.Fatal("refused before the limit")
	}
	b.succeeded()
	for range breakerLimit {
		if !b.allow(now) {
			t.Fatal("a success does not count failures from 0 again")
		}
		b.failed(now)
	}
	if b.allow(now.Add(breakerPause - 1)) {
		t.Error("allowed during the pause")
	}
	now = now.Add(breakerPause)
	if first, second := b.allow(now), b.allow(now); !first || second {
		t.Error("want one try after the pause")
	}
	b.abandoned()
	if !b.allow(now) {
		t.Error("a try that was given up blocks the next")
	}
	b.failed(now)
	if b.allow(now) {
		t.Error("allowed after a failed try")
	}
	if now = now.Add(breakerPause); !b.allow(now) {
		t.Error("refused after the next pause")
	}
	b.succeeded()
	for range 2 {
		if !b.allow(now) {
			t.Error("refused after a success")
		}
	}
}
