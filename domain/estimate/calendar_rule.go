package estimate

import (
	"slices"
	"strings"
	"time"
)

// rulePeriods name the frequencies of a series: each, and with a number.
var rulePeriods = map[string][2]string{
	"SECONDLY": {"every second", "seconds"}, "MINUTELY": {"every minute", "minutes"}, "HOURLY": {"hourly", "hours"},
	"DAILY": {"daily", "days"}, "WEEKLY": {"weekly", "weeks"}, "MONTHLY": {"monthly", "months"}, "YEARLY": {"yearly", "years"},
}

var ruleDays = map[string]string{
	"MO": "Monday", "TU": "Tuesday", "WE": "Wednesday", "TH": "Thursday", "FR": "Friday", "SA": "Saturday", "SU": "Sunday",
}

var rulePlaces = map[string]string{
	"1": "first ", "2": "second ", "3": "third ", "4": "fourth ", "5": "fifth ", "-1": "last ", "-2": "second last ",
}

// ruleText writes a rule of RFC 5545 in words. Parts that have none stay as they are, and so does what is no such rule.
func (c *cut) ruleText(rule string) string {
	parts := map[string]string{}
	var other []string
	for part := range strings.SplitSeq(strings.ToUpper(rule), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
		switch name {
		case "FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "WKST", "":
		default:
			other = append(other, name+"="+value)
		}
	}
	period, known := rulePeriods[parts["FREQ"]]
	if !known {
		return rule
	}
	words := []string{period[0]}
	if n := number(parts["INTERVAL"]); n > 1 {
		words = []string{"every " + parts["INTERVAL"] + " " + period[1]}
	}
	if days := parts["BYDAY"]; days != "" {
		words = append(words, "on "+eachOf(days, ruleDay))
	}
	if days := parts["BYMONTHDAY"]; days != "" {
		words = append(words, "on day "+eachOf(days, func(day string) string {
			return strings.Replace(day, "-1", "last", 1)
		}))
	}
	if months := parts["BYMONTH"]; months != "" {
		words = append(words, "in "+eachOf(months, func(month string) string {
			if n := number(month); n >= 1 && n <= 12 {
				return time.Month(n).String()
			}
			return month
		}))
	}
	if count := parts["COUNT"]; count != "" {
		words = append(words, count+" times")
	}
	if until := parts["UNTIL"]; until != "" {
		words = append(words, "until "+c.written(property{value: until}))
	}
	return strings.Join(slices.Concat(words, other), " ")
}

func eachOf(list string, word func(string) string) string {
	items := strings.Split(list, ",")
	for i, item := range items {
		items[i] = word(strings.TrimSpace(item))
	}
	return strings.Join(items, ", ")
}

// ruleDay names a day of a rule, such as TU, 2TU and -1FR.
func ruleDay(day string) string {
	if len(day) < 2 {
		return day
	}
	place, name := day[:len(day)-2], ruleDays[day[len(day)-2:]]
	if before, known := rulePlaces[strings.TrimPrefix(place, "+")]; known && name != "" {
		return before + name
	}
	if place != "" || name == "" {
		return day
	}
	return name
}
