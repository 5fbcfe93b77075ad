package comprehend

import (
	"strconv"
	"strings"
	"time"
)

// withClock adds the time of day that follows a single day: "tomorrow at 5 pm", "3 June at 17:00",
// "today at noon". An hour without am or pm ("at 5") is ambiguous and is ignored.
func (r *dateReader) withClock(d dated) dated {
	if d.clock || !d.start.AddDate(0, 0, 1).Equal(d.end) {
		return d
	}
	at := d.to
	if r.low(at) == "," && r.low(at+1) == "at" {
		at++
	}
	if r.low(at) != "at" {
		return d
	}
	minutes, to, ok := r.clock(at + 1)
	if !ok {
		return d
	}
	d.start = d.start.Add(time.Duration(minutes) * time.Minute)
	d.end = d.start.Add(time.Minute)
	d.to, d.clock = to, true
	return d
}

// clock reads a time of day as minutes since midnight.
func (r *dateReader) clock(i int) (minutes, to int, ok bool) {
	low := r.low(i)
	switch low {
	case "noon":
		return 12 * 60, i + 1, true
	case "midnight":
		return 0, 0, false // ambiguous between two days
	}
	half, to := r.low(i+1), i+2
	for _, suffix := range []string{"am", "pm", "a.m", "p.m"} {
		if cut, found := strings.CutSuffix(low, suffix); found {
			low, half, to = cut, suffix, i+1
		}
	}
	h, m, found := strings.Cut(low, ":")
	hour, err := strconv.Atoi(h)
	if err != nil || hour < 0 || len(h) > 2 {
		return 0, 0, false
	}
	minute := 0
	if found {
		if minute, err = strconv.Atoi(m); err != nil || len(m) != 2 || minute > 59 {
			return 0, 0, false
		}
	}
	switch half {
	case "am", "a.m", "pm", "p.m":
		if hour < 1 || hour > 12 {
			return 0, 0, false
		}
		hour %= 12
		if half[0] == 'p' {
			hour += 12
		}
		return hour*60 + minute, to, true
	}
	if !found || hour > 23 {
		return 0, 0, false
	}
	return hour*60 + minute, i + 1, len(h) == 2 || hour > 12
}
