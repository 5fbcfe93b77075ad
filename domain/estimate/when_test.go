package estimate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/runtest"
)

// Each form is the same time, in the zone of Rome where it names none.
func TestTimeOf_Forms(t *testing.T) {
	const want = "2025-06-03T07:04:05Z" // 09:04:05 in Rome
	for _, text := range []string{
		// ISO 8601 and what programs make of it.
		"2025-06-03T07:04:05Z", "2025-06-03 09:04:05", "2025-06-03T09:04:05+02:00", "2025-06-03 09:04:05 +0200", "2025-06-03 07:04:05 UTC",
		"2025-06-03 07:04:05 +0000 UTC", "2025-06-03 09:04:05 +0200 CEST", "2025-06-03T09:04:05+02:00[Europe/Rome]",
		"2025-06-03 07:04:05 +0000 UTC m=+0.012", "2025-06-03T07:04:05 Z", "2025-06-03T09:04:05 Europe/Rome", "2025/06/03 09:04:05",
		"20250603T070405Z", "20250603T090405", "20250603-090405", "20250603090405", "20250603 090405", "2025-06-03 9:04:05 AM",
		// Mail.
		"Tue, 3 Jun 2025 09:04:05 +0200", "Tue, 03 Jun 25 07:04:05 GMT", "3 Jun 2025 03:04:05 EDT", "Tue, 3 Jun 2025 00:04:05 PDT",
		"Tue, 3 Jun 2025 07:04:05 UT", "Tue, 3 Jun 2025 09:04:05 +0200 (CEST)", "Tue, 3 Jun (today) 2025 09:04:05+0200",
		"3 Jun 125 09:04:05 +0200", "Tue Jun  3 09:04:05 2025", "Tue Jun  3 09:04:05 CEST 2025", "Tue Jun 3 09:04:05 +0200 2025",
		"Tuesday, 03-Jun-25 07:04:05 GMT", "Tue, 3 Jun 2025 12:34:05 +0530 (IST)", "Tue, 3 Jun 2025 12:34:05 IST",
		// Programs.
		"Tue Jun 03 2025 09:04:05 GMT+0200 (Central European Summer Time)", "6/3/2025, 9:04:05 AM", "Jun 3, 2025, 9:04:05 AM",
		"Jun 3, 2025 9:04:05 AM", "June 3, 2025 at 9:04:05 AM GMT+2", "June 3rd, 2025 9:04:05 AM", "3-Jun-2025 09:04:05",
		"03/Jun/2025:09:04:05 +0200", "Tuesday, June 3, 2025 at 7:04:05 AM UTC", "1748934245", "1748934245.0", "1748934245000",
		"1748934245000000", "1748934245000000000", "1.748934245E9", "/Date(1748934245000)/", "/Date(1748934245000+0200)/",
		// People of other languages.
		"Di, 3 Jun 2025 09:04:05 +0200", "Dienstag, 3. Juni 2025 um 09:04:05", "3. Juni 2025, 09:04:05 Uhr", "03.06.2025 09:04:05",
		"03.06.25, 09:04:05", "3. 6. 2025 09:04:05", "mar. 3 juin 2025 à 09:04:05", "mardi 3 juin 2025 09:04:05", "3 de junio de 2025, 9:04:05",
		"mar, 3 jun 2025 09:04:05 +0200", "3 giugno 2025 09:04:05", "mar 3 giu 2025 09:04:05", "terça-feira, 3 de junho de 2025 09:04:05",
		"3 juni 2025 om 09:04:05", "den 3 juni 2025 kl. 09:04:05", "вт, 3 июн. 2025 г., 09:04:05", "3 июня 2025 г. 09:04:05",
		"3 czerwca 2025 09:04:05", "3 Haziran 2025 09:04:05", "3. kesäkuuta 2025 klo 9.04.05", "3. června 2025 9:04:05", "3 Ιουνίου 2025, 9:04:05 π.μ.",
		"3/6/2025, 9:04:05 a. m.", "3/6/2025, 9:04:05\u202fa.\u00a0m.", "2025年6月3日 9:04:05", "2025年6月3日 上午9:04:05", "2025年6月3日(火) 9時04分05秒",
		"3 de juny de 2025 9:04:05", "3 Juni 2025 pukul 09.04.05", "3. júna 2025 9:04:05", "3. junij 2025 9:04:05", "3 юни 2025 г. 9:04:05", "3 јун 2025 9:04:05",
		"3 ביוני 2025 9:04:05", "3 يونيو 2025 9:04:05 ص", "3 जून 2025 9:04:05", "3 июня 2025 г. в 9:04:05", "3 червня 2025 р. о 9:04:05",
		"2025-06-03_09-04-05", "2025-06-03 09-04-05", "ISODate(\"2025-06-03T07:04:05Z\")", "2025-06-03 03:04:05 US/Eastern", "3 Jun 2025 03:04:05 AM ET",
		"3 Jun 2025 10:04:05 МСК", "3 Jun 2025 11:04:05 GST", "Tue, 3 Jun 2025 09:04:05 \"CEST\"",
		"2025년 6월 3일 오전 9:04:05", "2025. 6. 3. 오전 9:04:05", "٠٣/٠٦/٢٠٢٥ ٠٩:٠٤:٠٥", "3 มิ.ย. 2568 09:04:05", "3 มิถุนายน พ.ศ. 2568 09:04:05",
	} {
		monthFirst := strings.HasPrefix(text, "6/")
		if at, ok := estimate.TimeOf(text, rome(t), monthFirst); !ok || at.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q is %v, %v", text, at.UTC(), ok)
		}
	}
}

// Dates without a clock are the beginning of the day in the zone.
func TestTimeOf_Days(t *testing.T) {
	for _, text := range []string{
		"2025-06-03", "20250603", "03.06.2025", "3.6.25", "3/6/2025", "3 June 2025", "June 3, 2025", "Jun 3 2025", "3. Juni 2025", "3 juin 2025",
		"3-Jun-25", "2025 June 3", "2025年6月3日", "mardi 3 juin 2025", "3rd of June 2025", "1er juin 2025", "12 maggio 2025", "31 grudnia 2024",
	} {
		at, ok := estimate.TimeOf(text, rome(t), false)
		if in := at.In(rome(t)); !ok || in.Hour() != 0 || in.Minute() != 0 || !slices.Contains([]string{
			"2025-06-03", "2025-06-01", "2025-05-12", "2024-12-31",
		}, in.Format(time.DateOnly)) {
			t.Errorf("%q is %v, %v", text, at, ok)
		}
	}
}

// What is no time, or in a zone that is not known, is unread: a wrong time is worse than none.
func TestTimeOf_Unread(t *testing.T) {
	for _, text := range []string{
		"", "N/A", "now", "0000-00-00 00:00:00", "0001-01-01T00:00:00Z", "12/05/2568", "45789.5", "-86400", "0", "1", "99999999", "2025", "4471",
		"12 May", "May 2025", "10:15", "10:15:30 12", "32/05/2025", "2025-02-30", "12 May 2025 25:00", "2025-06-03 09:04:05 XYZ",
		"Tue, 3 Jun 2025 09:04:05 XST", "3 Jun 2025 09:04 Q", "1e300", "99999999999999999999", "5000000000", "Gate 3 opens on 4 May 2025",
		"3 Jun 2025 and 4 Jun 2025", "1.2.3.4", "192.168.10.20", "+49 30 1234567", "20251345", "May 12 2025 13 14", "3 June 2025 +99:00",
		"3 Jun 2025 09:04:05 A", "3 Jun 2025 09:04:05 V", "3 Jun 2025 09:04:05 E", "3 Jun 2025 09:04:05 CCT",
	} {
		if at, ok := estimate.TimeOf(text, rome(t), false); ok {
			t.Errorf("%q is %v", text, at)
		}
	}
}

func TestTimeOf_Cases(t *testing.T) {
	for text, want := range map[string]string{
		"Sat, 31 Dec 2016 18:59:60 -0500": "2017-01-01T00:00:00Z", "2016-12-31T23:59:60Z": "2017-01-01T00:00:00Z",
		"Sun, 27 Oct 2002 23:57:07 EST": "2002-10-28T04:57:07Z", "915148800": "1999-01-01T00:00:00Z",
		"1747037100.25": "2025-05-12T08:05:00.25Z", "12 May 2025 24:00 UTC": "2025-05-13T00:00:00Z",
		"12/31/1999 11:59:59 PM": "1999-12-31T22:59:59Z", "Thu, 1 Jan 98 00:00:00 GMT": "1998-01-01T00:00:00Z",
		"202505121015": "2025-05-12T08:15:00Z", "3 Jun 2025 09:04 UT": "2025-06-03T09:04:00Z", "pet 3. jun 2025 09:04 PET": "2025-06-03T14:04:00Z",
		"2025-05-12 10:15:30.123456789 +0200": "2025-05-12T08:15:30.123456Z", "12.05.2025 12:15 AM": "2025-05-11T22:15:00Z",
		"2025-05-12 10:15 PST": "2025-05-12T18:15:00Z", "12 May 2025 22:15 JST": "2025-05-12T13:15:00Z",
		"Mon, 12 May 2025 10:15:30 -0000": "2025-05-12T10:15:30Z", "1935-06-01": "1935-05-31T23:00:00Z",
	} {
		if at, ok := estimate.TimeOf(text, rome(t), false); !ok || at.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q is %v, %v: want %s", text, at.UTC(), ok, want)
		}
	}
	// What an abbreviation means depends on who writes it.
	for zone, want := range map[string]string{"Asia/Shanghai": "02:15", "America/Chicago": "16:15", "Asia/Kolkata": "16:15"} {
		place, err := time.LoadLocation(zone)
		runtest.Must(t, err)
		if at, ok := estimate.ParseTime("12 Jan 2025 10:15 CST", place, false); !ok || at.UTC().Format("15:04") != want {
			t.Errorf("CST in %s is %v, %v", zone, at, ok)
		}
	}
}

// The order of day and month is that of the whole file: also of its last row, and of the order of its rows.
func TestCut_DateOrder(t *testing.T) {
	rows := func(dates ...string) string {
		return "date,text\n" + strings.Join(dates, ",x\n") + ",x\n"
	}
	for name, c := range map[string]struct {
		dates []string
		want  string
	}{
		"day first by the last row":     {append(slices.Repeat([]string{"05/06/2025"}, 300), "25/06/2025"), "2025-06-05"},
		"month first by the last row":   {append(slices.Repeat([]string{"05/06/2025"}, 300), "06/25/2025"), "2025-05-06"},
		"day first by default":          {[]string{"05/06/2025"}, "2025-06-05"},
		"month first by the clock":      {[]string{"05/06/2025 9:31 PM"}, "2025-05-06"},
		"day first by the rows":         {[]string{"05/06/2025 9:31 PM", "06/06/2025 9:31 PM", "07/06/2025 9:31 PM", "01/07/2025 9:31 PM"}, "2025-06-05"},
		"month first by the rows":       {[]string{"05/06/2025", "05/07/2025", "06/01/2025", "07/01/2025"}, "2025-05-06"},
		"one other date changes little": {append(slices.Repeat([]string{"05/06/2025", "25/06/2025"}, 3), "06/25/2025"), "2025-06-05"},
	} {
		for ext, content := range map[string]string{
			"csv": rows(c.dates...), "jsonl": `{"date":"` + strings.Join(c.dates, "\",\"text\":\"x\"}\n{\"date\":\"") + `","text":"x"}`,
		} {
			points, reason := cutAll(t, estimate.File{Path: "a." + ext, Content: content}, time.UTC)
			if len(points) == 0 || points[0].At.Format(time.DateOnly) != c.want {
				t.Errorf("%s in %s: %v, %s", name, ext, points[:min(1, len(points))], reason)
			}
		}
	}
}

// The name of a file names a time, and its zone.
func TestCut_TimeInName(t *testing.T) {
	for name, want := range map[string]string{
		"GMT20250603-070405_Recording.txt": "2025-06-03T07:04:05Z", "note 2025-06-03.txt": "2025-06-02T22:00:00Z",
		"2025-06-03T090405.txt": "2025-06-03T07:04:05Z", "20250603T070405Z.txt": "2025-06-03T07:04:05Z",
		"Screen 2025-06-03 at 09.04.05.txt": "2025-06-03T07:04:05Z", "log_2025-06-03_07-04-05_UTC.txt": "2025-06-03T07:04:05Z",
		"2025-06-03T09-04-05+0200.txt": "2025-06-03T07:04:05Z", "UTC-20250603-0704.txt": "2025-06-03T07:04:00Z", "room 4471.txt": "",
	} {
		points, reason := cutAll(t, estimate.File{Path: name, Content: "tea"}, rome(t))
		if reason != "" || len(points) != 1 {
			t.Fatalf("%s: %s", name, reason)
		}
		got := ""
		if at := points[0].At; !at.IsZero() {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
}

// FuzzTimeOf reads any text: it ends, and gives only times that can be sent.
func FuzzTimeOf(f *testing.F) {
	for _, text := range []string{
		"Mon, 12 May 2025 10:15:30 +0200 (CEST)", "12. 5. 2025 9.04.05", "2025年5月12日(月) 9時04分05秒", "p. m. p. m.", "((((", "1:1:1:1", "+-+-",
		"12-May-2025-", "/Date(1)/", "a/b/c/d", "٠٣", "\u202f", "m=+",
	} {
		f.Add(text)
	}
	zone := rome(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, monthFirst := range []bool{false, true} {
			at, ok := estimate.TimeOf(text, zone, monthFirst)
			again, same := estimate.TimeOf(text, zone, monthFirst)
			if !at.Equal(again) || ok != same {
				t.Fatalf("%q is %v and %v", text, at, again)
			}
			if ok && (at.Year() < 999 || at.Year() > 2201) {
				t.Fatalf("%q is %v", text, at)
			}
		}
	})
}
