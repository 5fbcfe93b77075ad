package comprehend_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

// periods are the periods of a question, each as start/end.
func periods(question string, asked time.Time) []string {
	var got []string
	for _, p := range comprehend.Periods(question, asked) {
		start, end := p.Start.Format(stored), p.End.Format(stored)
		got = append(got, strings.TrimSuffix(start, "T00:00")+"/"+strings.TrimSuffix(end, "T00:00"))
	}
	return got
}

// Asked on Monday 12 May 2025.
func TestPeriods(t *testing.T) {
	one := func(period string) []string { return []string{period} }
	for _, tc := range []struct {
		text string
		want []string
	}{
		// Days of a month.
		{"what did we agree on 12 May?", one("2025-05-12/2025-05-13")},
		{"what did we agree on 12 may", one("2025-05-12/2025-05-13")},
		{"notes 12 may", one("2025-05-12/2025-05-13")},
		{"notes may 12", one("2025-05-12/2025-05-13")},
		{"WHAT HAPPENED ON MAY 12?", one("2025-05-12/2025-05-13")},
		{"the 12th of may", one("2025-05-12/2025-05-13")},
		{"12th of may 2024", one("2024-05-12/2024-05-13")},
		{"may 12th, 2024", one("2024-05-12/2024-05-13")},
		{"mon 12 may", one("2025-05-12/2025-05-13")},
		{"sun, 4 may", one("2025-05-04/2025-05-05")},
		{"what was said on 13 may", one("2024-05-13/2024-05-14")},
		{"what will be said on 11 may", one("2026-05-11/2026-05-12")},
		{"31 dec", one("2024-12-31/2025-01-01")},
		{"sept 3", one("2024-09-03/2024-09-04")},
		{"3 sept. 2023", one("2023-09-03/2023-09-04")},
		{"mar 3", one("2025-03-03/2025-03-04")},
		{"what arrived march 3?", one("2025-03-03/2025-03-04")},
		{"aug 1st", one("2024-08-01/2024-08-02")},
		{"second of may", one("2025-05-02/2025-05-03")},
		{"on the twenty-third of march", one("2025-03-23/2025-03-24")},
		{"may the fourth", one("2025-05-04/2025-05-05")},
		{"what broke june first", one("2024-06-01/2024-06-02")},
		{"what did we do on the 3rd", one("2025-05-03/2025-05-04")},
		{"what did we do on the 20th?", one("2025-04-20/2025-04-21")},
		{"2025-05-12", one("2025-05-12/2025-05-13")},
		{"12.05.2025", one("2025-05-12/2025-05-13")},
		{"13/5/2025", one("2025-05-13/2025-05-14")},
		{"5/13/2025", one("2025-05-13/2025-05-14")},
		{"2025/05/12", one("2025-05-12/2025-05-13")},
		{"12-May-2024", one("2024-05-12/2024-05-13")},
		{"log of 12-may", one("2025-05-12/2025-05-13")},
		{"was it on 3 may or 5 may?", []string{"2025-05-03/2025-05-04", "2025-05-05/2025-05-06"}},
		{"what happened on 12 may at 5 pm", one("2025-05-12/2025-05-13")},
		// Near days.
		{"What happened yesterday?", one("2025-05-11/2025-05-12")},
		{"WHAT HAPPENED YESTERDAY", one("2025-05-11/2025-05-12")},
		{"yesterday's lunch", one("2025-05-11/2025-05-12")},
		{"what happened today", one("2025-05-12/2025-05-13")},
		{"who called this morning", one("2025-05-12/2025-05-13")},
		{"who called last night", one("2025-05-11/2025-05-12")},
		{"the day before yesterday", one("2025-05-10/2025-05-11")},
		{"what is on tomorrow", one("2025-05-13/2025-05-14")},
		{"three days ago", one("2025-05-09/2025-05-10")},
		{"a couple of days ago", one("2025-05-10/2025-05-11")},
		// Weekdays.
		{"what did we agree last friday?", one("2025-05-09/2025-05-10")},
		{"What did we agree last Friday?", one("2025-05-09/2025-05-10")},
		{"what did we agree last monday", one("2025-05-05/2025-05-06")},
		{"what did we agree on friday", one("2025-05-09/2025-05-10")},
		{"what did we agree on monday", one("2025-05-12/2025-05-13")},
		{"what did we agree friday", one("2025-05-09/2025-05-10")},
		{"friday evening talk", one("2025-05-09/2025-05-10")},
		{"the fri meeting", one("2025-05-09/2025-05-10")},
		{"what did we do on tue?", one("2025-05-06/2025-05-07")},
		{"what did we do on sat", one("2025-05-10/2025-05-11")},
		{"who came last sun?", one("2025-05-11/2025-05-12")},
		{"who came on wed night", one("2025-05-07/2025-05-08")},
		{"what will we do on friday", one("2025-05-16/2025-05-17")},
		{"what is due by friday", one("2025-05-16/2025-05-17")},
		{"who is there next friday", one("2025-05-16/2025-05-17")},
		{"this friday", one("2025-05-16/2025-05-17")},
		{"the friday before last", one("2025-05-02/2025-05-03")},
		{"what did we plan to do on friday?", one("2025-05-09/2025-05-10")},
		{"two fridays ago", one("2025-05-02/2025-05-03")},
		{"what are we doing on friday?", one("2025-05-16/2025-05-17")},
		{"what were we doing on friday?", one("2025-05-09/2025-05-10")},
		// Weeks.
		{"what did we agree on last week?", one("2025-05-05/2025-05-12")},
		{"what did we agree this week", one("2025-05-12/2025-05-19")},
		{"the week before last", one("2025-04-28/2025-05-05")},
		{"what did we agree a week ago", one("2025-05-05/2025-05-12")},
		{"what did we agree two weeks ago", one("2025-04-28/2025-05-05")},
		{"a couple of weeks ago", one("2025-04-28/2025-05-05")},
		{"a week ago today", one("2025-05-05/2025-05-06")},
		{"what did we agree a week ago on fri", one("2025-05-09/2025-05-10")},
		{"on friday two weeks ago", one("2025-05-02/2025-05-03")},
		{"last week on sat", one("2025-05-10/2025-05-11")},
		{"last week thursday", one("2025-05-08/2025-05-09")},
		{"friday of last week", one("2025-05-09/2025-05-10")},
		{"friday the week before last", one("2025-05-02/2025-05-03")},
		{"the week of 6 may", one("2025-05-05/2025-05-12")},
		{"in the last week", one("2025-05-05/2025-05-13")},
		{"over the past two weeks", one("2025-04-28/2025-05-13")},
		{"in the last 3 days", one("2025-05-09/2025-05-13")},
		{"who is away in the next 3 days", one("2025-05-12/2025-05-16")},
		{"last weekend", one("2025-05-10/2025-05-12")},
		{"what did we do at the weekend", one("2025-05-10/2025-05-12")},
		// Months, quarters, years.
		{"what did we ship in may", one("2025-05-01/2025-06-01")},
		{"what did we ship in June?", one("2024-06-01/2024-07-01")},
		{"what will we ship in june?", one("2025-06-01/2025-07-01")},
		{"in may 2025", one("2025-05-01/2025-06-01")},
		{"may 2024 invoices", one("2024-05-01/2024-06-01")},
		{"last may", one("2024-05-01/2024-06-01")},
		{"next may", one("2026-05-01/2026-06-01")},
		{"early may", one("2025-05-01/2025-06-01")},
		{"mid-may", one("2025-05-01/2025-06-01")},
		{"by the end of march", one("2025-03-01/2025-04-01")},
		{"the january report", one("2025-01-01/2025-02-01")},
		{"the May report", one("2025-05-01/2025-06-01")},
		{"december invoice", one("2024-12-01/2025-01-01")},
		{"invoices for april", one("2025-04-01/2025-05-01")},
		{"in sept", one("2024-09-01/2024-10-01")},
		{"in 2025-04", one("2025-04-01/2025-05-01")},
		{"in 04/2025", one("2025-04-01/2025-05-01")},
		{"last month", one("2025-04-01/2025-05-01")},
		{"six months ago", one("2024-11-01/2024-12-01")},
		{"in q1", one("2025-01-01/2025-04-01")},
		{"q3 2024", one("2024-07-01/2024-10-01")},
		{"in 2024", one("2024-01-01/2025-01-01")},
		{"in summer 2023", one("2023-01-01/2024-01-01")},
		{"at the end of 2023?", one("2023-01-01/2024-01-01")},
		{"last year", one("2024-01-01/2025-01-01")},
		// Ranges and open spans.
		{"between 3 and 5 May", one("2025-05-03/2025-05-06")},
		{"between may 3 and 5", one("2025-05-03/2025-05-06")},
		{"between 3 may and 5 june", one("2025-05-03/2025-06-06")},
		{"from the 3rd to the 5th", one("2025-05-03/2025-05-06")},
		{"may 3-5", one("2025-05-03/2025-05-06")},
		{"3–5 may 2024", one("2024-05-03/2024-05-06")},
		{"from monday to wednesday", one("2025-05-05/2025-05-08")},
		{"from sat to mon", one("2025-05-10/2025-05-13")},
		{"between november and february", one("2024-11-01/2025-03-01")},
		{"from 2022 to 2023", one("2022-01-01/2024-01-01")},
		{"in april and may", []string{"2025-04-01/2025-05-01", "2025-05-01/2025-06-01"}},
		{"since Monday", one("2025-05-12/2025-05-13")},
		{"since friday", one("2025-05-09/2025-05-13")},
		{"since 2024", one("2024-01-01/2025-05-13")},
		{"from last friday on", one("2025-05-09/2025-05-13")},
		{"after 3 may", one("2025-05-04/2025-05-13")},
		{"before 3 may", one("0001-01-01/2025-05-03")},
		{"the day after 3 may", one("2025-05-04/2025-05-05")},
		{"the week before 3 may", one("2025-04-26/2025-05-03")},
		{"two days before last friday", one("2025-05-07/2025-05-08")},
		// No period: other words, and dates that cannot be known.
		{"may I see it?", nil},
		{"what may we do", nil},
		{"who may enter", nil},
		{"this may fail", nil},
		{"what may 12 boats carry?", nil},
		{"which of the 12 may be late", nil},
		{"we may 3 or 4 of us", nil},
		{"maybe it is lost", nil},
		{"What did May say to Ana?", nil},
		{"we march on", nil},
		{"how far did we march", nil},
		{"we march 3 miles", nil},
		{"the march of progress", nil},
		{"an august body", nil},
		{"the sun", nil},
		{"sun and moon", nil},
		{"what is the effect on sun loungers", nil},
		{"who sat down", nil},
		{"where she last sat at the window", nil},
		{"who wed whom", nil},
		{"mon ami", nil},
		{"the second boat", nil},
		{"one second", nil},
		{"do not mar the deck", nil},
		{"What did April say?", nil},
		{"every friday", nil},
		{"on fridays", nil},
		{"friday nights", nil},
		{"the last friday of the month", nil},
		{"what did we buy on black friday", nil},
		{"who is Wednesday Addams?", nil},
		{"5/12/2025", nil},
		{"31 june", nil},
		{"version 12.05.2025", nil},
		{"2024", nil},
		{"in 2000 metres", nil},
		{"the 12th floor", nil},
		{"order 12 of 2", nil},
		{"how many boats are there now?", nil},
		{"", nil},
	} {
		if got := periods(tc.text, monday); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.text, got, tc.want)
		}
	}
}

// Days are those of the location that the question is asked in.
func TestPeriods_Location(t *testing.T) {
	for _, tc := range []struct{ text, asked, want string }{
		{"yesterday", "2025-05-12T23:30:00-07:00", "2025-05-11T00:00:00-07:00/2025-05-12T00:00:00-07:00"},
		{"today", "2025-05-12T23:30:00-07:00", "2025-05-12T00:00:00-07:00/2025-05-13T00:00:00-07:00"},
		{"on 12 May", "2025-05-12T23:30:00-07:00", "2025-05-12T00:00:00-07:00/2025-05-13T00:00:00-07:00"},
		{"2025-05-11", "2025-05-12T23:30:00-07:00", "2025-05-11T00:00:00-07:00/2025-05-12T00:00:00-07:00"},
		{"on monday", "2025-05-12T23:30:00-07:00", "2025-05-12T00:00:00-07:00/2025-05-13T00:00:00-07:00"},
		{"yesterday", "2025-05-12T00:30:00+05:45", "2025-05-11T00:00:00+05:45/2025-05-12T00:00:00+05:45"},
		{"in may", "2025-05-01T00:30:00+05:45", "2025-05-01T00:00:00+05:45/2025-06-01T00:00:00+05:45"},
		{"last week", "2025-05-12T00:30:00+05:45", "2025-05-05T00:00:00+05:45/2025-05-12T00:00:00+05:45"},
		{"in q1 2025", "2025-05-12T00:30:00+05:45", "2025-01-01T00:00:00+05:45/2025-04-01T00:00:00+05:45"},
		{"yesterday", "2025-05-12T23:30:00Z", "2025-05-11T00:00:00Z/2025-05-12T00:00:00Z"},
	} {
		asked, err := time.Parse(time.RFC3339, tc.asked)
		runtest.Must(t, err)
		got := comprehend.Periods(tc.text, asked)
		if len(got) != 1 || got[0].Start.Format(time.RFC3339)+"/"+got[0].End.Format(time.RFC3339) != tc.want {
			t.Errorf("%q at %s: got %v, want %s", tc.text, tc.asked, got, tc.want)
		}
	}
}

// casings are the ways to write a text in letters of another case.
var casings = []func(string) string{
	func(s string) string { return s }, strings.ToLower, strings.ToUpper,
}

// askedOn draws the time and the zone of a question.
func askedOn(t *rapid.T) time.Time {
	zone := time.FixedZone("", 15*60*rapid.IntRange(-48, 56).Draw(t, "offset"))
	return day(t).Add(time.Duration(rapid.IntRange(0, 24*3600-1).Draw(t, "second")) * time.Second).In(zone)
}

// A day that is written with its year, in any of its forms and in any case, is that day.
func TestPeriods_FormsOfADay(t *testing.T) {
	layouts := []string{
		"2 January 2006", "2 Jan 2006", "January 2, 2006", "Jan 2 2006", "2006-01-02", "2006/01/02", "02.01.2006",
		"Monday, 2 January 2006", "Mon 2 Jan 2006", "January 2 2006", "2-Jan-2006",
	}
	rapid.Check(t, func(t *rapid.T) {
		asked, want := askedOn(t), day(t)
		text := want.Format(rapid.SampledFrom(layouts).Draw(t, "layout"))
		if rapid.Bool().Draw(t, "ordinal") {
			text = fmt.Sprintf("the %s of %s", ordinal(want.Day()), want.Format("January 2006"))
		}
		text = rapid.SampledFrom(casings).Draw(t, "case")("What happened on " + text + "?")
		start := time.Date(want.Year(), want.Month(), want.Day(), 0, 0, 0, 0, asked.Location())
		wantPeriod(t, text, asked, start, start.AddDate(0, 0, 1))
	})
}

// A day without a year is the last one of its name, the day of the question included.
func TestPeriods_DayWithoutYear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := askedOn(t)
		today := time.Date(asked.Year(), asked.Month(), asked.Day(), 0, 0, 0, 0, asked.Location())
		want := today.AddDate(0, 0, -rapid.IntRange(0, 360).Draw(t, "days"))
		forms := []string{
			want.Format("2 January"), want.Format("January 2"), want.Format("Jan 2"), want.Format("2 Jan"),
			ordinal(want.Day()) + " of " + want.Format("January"), want.Format("January ") + ordinal(want.Day()),
		}
		if today.Sub(want) < 6*24*time.Hour {
			forms = append(forms, want.Format("Monday"), want.Format("Mon"))
		}
		text := rapid.SampledFrom(casings).Draw(t, "case")("What happened on " + rapid.SampledFrom(forms).Draw(t, "form") + "?")
		wantPeriod(t, text, asked, want, want.AddDate(0, 0, 1))
	})
}

func ordinal(n int) string {
	suffix := "th"
	if n < 11 || n > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

func wantPeriod(t *rapid.T, text string, asked, start, end time.Time) {
	got := comprehend.Periods(text, asked)
	if len(got) != 1 || !got[0].Start.Equal(start) || !got[0].End.Equal(end) {
		t.Fatalf("%q asked at %s: got %v, want %s to %s", text, asked, got, start, end)
	}
}

// A text without a date gives no period, in any case.
func TestPeriods_NoDate(t *testing.T) {
	phrases := strings.Split("we may go,you may sail,they march on,an august body,the sun rose,she sat down,the second boat,"+
		"two seconds,wedding,the crane,who paid,42 boats,AB-12-907,version 1.2.3,the invoice of Ana,a decade,mondays,"+
		"maybe,marching,10.0.0.1,how many,€ 40,+49 30 1234567,P-40,which tickets,novel,decent,sunny,satin,marble", ",")
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom(phrases), 0, 12).Draw(t, "phrases")
		text := rapid.SampledFrom(casings).Draw(t, "case")(strings.Join(words, ", "))
		if got := comprehend.Periods(text, askedOn(t)); len(got) > 0 {
			t.Fatalf("%q: got %v", text, got)
		}
	})
}

// Whatever is asked, a period is not empty, is in the range of times, and has the location of the question.
func TestPeriods_Any(t *testing.T) {
	words := strings.Fields(`on in at the a last next this since before after between and to from of may march monday fri sat
		12 3rd 2024 12.05.2025 week weeks weekend month year ago days two q3 may-12 – , ? yesterday today mid-may second`)
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 20).Draw(t, "words"), " ")
		asked := askedOn(t)
		for _, p := range comprehend.Periods(text, asked) {
			if !p.Start.Before(p.End) || p.Start.Year() < 1 || p.End.Year() > 9999 || p.Start.Location() != asked.Location() {
				t.Errorf("%q asked at %s: %v", text, asked, p)
			}
		}
	})
}
