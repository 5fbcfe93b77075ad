package estimate

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// isCalendar reports whether a text is a calendar of RFC 5545, or of its predecessor.
func isCalendar(head string) bool { return beginsWith(head, "BEGIN:VCALENDAR") }

func beginsWith(text, begin string) bool {
	text = strings.TrimLeft(text[:min(len(text), 4096)], " \n\t")
	return len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], begin)
}

// event is an entry of a calendar: an event, a task or a journal.
type event struct {
	uid, recurrence, summary, location           string
	descriptions                                 []string
	start, end, due, duration, status, rule, url string
	stamp, modified, created                     string
	organizer, organizerMail                     string
	attendees                                    []string
	// replaced is recurrence as it is written, except and also are days that a series lacks or has besides.
	replaced, completed         string
	except, also                []string
	categories, contacts, files []string
	// rich is a description in HTML; lastDay is the last of whole days.
	rich, lastDay string
}

// maxAttached is how many dates, categories and links of an event are written.
const maxAttached = 100

// maxAttendees is how many people of an event are named.
const maxAttendees = 200

// cutCalendar cuts a calendar: one data point for each entry. Its time is when it was written down: one in the future
// would be out of reach of recall until then. The date of the event itself is in the content, as it was written.
func cutCalendar(c *cut) error {
	taken := newNames()
	var failed error
	c.events(c.text, func(e event) {
		content := e.text()
		if failed != nil {
			return
		}
		if content == "" {
			c.remarks.add(NoWords, e.uid)
			return
		}
		p := Point{
			Content: content, Label: cmp.Or(fitName(e.summary, 1000), c.base),
			Identity: cmp.Or(strings.ToLower(e.organizerMail), e.organizer), Metadata: c.metadata("uid", fitName(e.uid, 500)),
		}
		for _, text := range []string{e.stamp, e.modified, e.created} {
			if at, ok := parseTime(text, c.zone, false); ok {
				p.At = at
				break
			}
		}
		key := e.uid
		if key != "" && e.recurrence != "" {
			key += "/" + e.recurrence
		}
		p.ID = c.id(taken.unique(key, content))
		failed = c.emit(p)
	})
	return failed
}

// calendarText returns the entries of a calendar that is part of a mail.
func (c *cut) calendarText(text string) string {
	var all mailText
	c.events(text, func(e event) { all.write(e.text()) })
	return all.text()
}

// events calls yield with each entry. Alarms and the rules of zones are left out.
func (c *cut) events(text string, yield func(event)) {
	var e event
	open := "" // the entry that is open; inner counts the parts that are open in it
	inner := 0
	c.properties(text, func(p property) {
		kind := strings.ToUpper(strings.TrimSpace(p.value))
		isEntry := kind == "VEVENT" || kind == "VTODO" || kind == "VJOURNAL"
		switch {
		case p.name == "":
			c.remarks.add(Unreadable, "")
		case p.name == "BEGIN" && open == "" && isEntry:
			e, open, inner = event{}, kind, 0
		case p.name == "BEGIN" && open == "" && kind == "VFREEBUSY":
			c.remarks.add(NoWords, kind)
		case p.name == "BEGIN" && open != "":
			inner++
		case p.name == "END" && open != "" && inner == 0:
			yield(c.complete(e))
			open = ""
		case p.name == "END" && open != "":
			inner--
		case open != "" && inner == 0:
			c.property(&e, p)
		}
	})
	if open != "" {
		yield(c.complete(e)) // a calendar that was cut off
	}
}

// complete takes the description in HTML for an entry that has no other.
func (c *cut) complete(e event) event {
	if len(e.descriptions) == 0 && e.rich != "" {
		e.descriptions = nonEmpty(strings.TrimSpace(c.htmlText(e.rich)))
	}
	return e
}

func (c *cut) property(e *event, p property) {
	switch p.name {
	case "UID":
		e.uid = p.text(c)
	case "RECURRENCE-ID":
		e.recurrence, e.replaced = p.text(c), c.written(p)
	case "SUMMARY":
		e.summary = p.text(c)
	case "DESCRIPTION", "COMMENT":
		e.descriptions = append(e.descriptions, nonEmpty(p.text(c))...)
	case "LOCATION":
		e.location = p.text(c)
	case "URL":
		e.url = p.text(c)
	case "DTSTART":
		e.start = c.written(p)
	case "DTEND":
		e.end, e.lastDay = c.written(p), lastDay(p.value)
	case "DUE":
		e.due = c.written(p)
	case "DURATION":
		e.duration = p.text(c)
	case "RRULE":
		e.rule = c.ruleText(p.text(c))
	case "EXDATE":
		e.except = c.dates(e.except, p)
	case "RDATE":
		e.also = c.dates(e.also, p)
	case "COMPLETED":
		e.completed = c.written(p)
	case "CATEGORIES":
		e.categories = appendFew(e.categories, p.text(c))
	case "CONTACT":
		e.contacts = appendFew(e.contacts, p.text(c))
	case "ATTACH":
		if p.param("ENCODING") != "" || strings.HasPrefix(p.value, "data:") {
			c.remarks.add(NotText, e.uid)
		} else {
			e.files = appendFew(e.files, p.text(c))
		}
	case "X-ALT-DESC":
		e.rich = p.text(c)
	case "STATUS":
		e.status = strings.ToLower(p.text(c))
	case "DTSTAMP":
		e.stamp = p.inZone()
	case "LAST-MODIFIED":
		e.modified = p.inZone()
	case "CREATED", "DCREATED":
		e.created = p.inZone()
	case "ORGANIZER":
		e.organizer, e.organizerMail = c.person(p)
	case "ATTENDEE":
		if name, mail := c.person(p); len(e.attendees) < maxAttendees {
			who := cmp.Or(name, mail)
			if answer := p.param("PARTSTAT"); answer != "" && !strings.EqualFold(answer, "NEEDS-ACTION") {
				who += " (" + strings.ToLower(fitName(answer, 30)) + ")"
			}
			e.attendees = append(e.attendees, who)
		}
	}
}

// inZone returns a time with the zone that its property names.
func (p property) inZone() string {
	if zone := p.param("TZID"); zone != "" && !strings.HasSuffix(p.value, "Z") {
		return strings.TrimSpace(p.value) + " " + zone
	}
	return p.value
}

func appendFew(list []string, text string) []string {
	if len(list) >= maxAttached {
		return list
	}
	return append(list, nonEmpty(text)...)
}

// dates adds the dates of a property, of which one may have several.
func (c *cut) dates(list []string, p property) []string {
	for value := range strings.SplitSeq(p.value, ",") {
		if len(list) >= maxAttached {
			break
		}
		value, _, _ = strings.Cut(value, "/") // the beginning of a period
		list = appendFew(list, c.written(property{params: p.params, value: value}))
	}
	return list
}

// lastDay returns the last of whole days, "" for a time: what a calendar has as their end is the day after it.
func lastDay(end string) string {
	day, err := time.Parse("20060102", strings.TrimSpace(end))
	if err != nil {
		return ""
	}
	return day.AddDate(0, 0, -1).Format(time.DateOnly)
}

// person returns the name and the address of someone.
func (c *cut) person(p property) (name, mail string) {
	value := strings.TrimSpace(p.text(c))
	if len(value) > 7 && strings.EqualFold(value[:7], "mailto:") {
		mail = fitName(value[7:], 300)
	}
	return fitName(decodeWords(p.param("CN")), 200), mail
}

// written returns a date as the event has it: the day, the clock, and the zone.
func (c *cut) written(p property) string {
	value := strings.TrimSpace(p.value)
	at, err := time.Parse("20060102", value[:min(len(value), 8)])
	if err != nil {
		return fitName(p.text(c), 100)
	}
	text := at.Format(time.DateOnly)
	if len(value) >= len("20060102T1504") && (value[8] == 'T' || value[8] == 't') {
		text += " " + value[9:11] + ":" + value[11:13]
		switch zone := fitName(p.param("TZID"), 100); {
		case strings.HasSuffix(value, "Z"):
			text += " UTC"
		case zone != "":
			text += " " + zone
		}
	}
	return text
}

// text writes an entry for people, "" for one without words.
func (e event) text() string {
	if e.summary == "" && len(e.descriptions) == 0 && e.location == "" {
		return ""
	}
	var b strings.Builder
	line := func(name, text string) {
		if text = strings.TrimSpace(text); text == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if name != "" {
			b.WriteString(name + ": ")
		}
		b.WriteString(text)
	}
	line("", e.summary)
	when, end := e.start, cmp.Or(e.lastDay, e.end)
	if end > e.start || end != "" && e.lastDay == "" && end != e.start {
		when += " to " + end
	}
	line("When", strings.TrimPrefix(when, " to "))
	line("Due", e.due)
	line("Duration", e.duration)
	line("Repeats", e.rule)
	line("Not on", strings.Join(e.except, ", "))
	line("Also on", strings.Join(e.also, ", "))
	line("Replaces the date", e.replaced)
	line("Where", e.location)
	line("Organizer", cmp.Or(e.organizer, e.organizerMail))
	line("Attendees", strings.Join(e.attendees, ", "))
	line("Contact", strings.Join(e.contacts, ", "))
	line("Categories", strings.Join(e.categories, ", "))
	line("Status", e.status)
	line("Completed", e.completed)
	line("Link", e.url)
	line("Attached", strings.Join(e.files, ", "))
	line("", strings.Join(e.descriptions, "\n"))
	return b.String()
}

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

// property is a line "NAME;PARAMETER=value:value" of a calendar or a vCard.
type property struct {
	// name is in upper case, without the group of a vCard, which is group.
	name   string
	group  string
	params string
	value  string
}

// maxProperty bounds a property after its lines are joined; the rest of a longer one, such as a picture, is not kept.
const maxProperty = 256 << 10

// properties reads the properties of a text and joins those that were folded. It calls yield with each, and for a line
// that is none with an empty name. The library that reads calendars stops at such a line; exports have many.
func (w *watch) properties(text string, yield func(property)) {
	var b strings.Builder
	soft := false // the line goes on after "=", as those of vCard 2.1 do
	flush := func() {
		if b.Len() > 0 {
			yield(propertyOf(b.String()))
		}
		b.Reset()
		soft = false
	}
	for text != "" {
		var line string
		line, text = w.line(text)
		folded := line != "" && (line[0] == ' ' || line[0] == '\t')
		switch {
		case soft:
			line = strings.TrimSuffix(line, "=")
			soft = strings.HasSuffix(strings.TrimRight(line, " "), "=") && text != ""
		case folded:
			line = line[1:]
		default:
			flush()
			begin := strings.ToUpper(line[:min(len(line), 200)])
			if soft = strings.HasSuffix(line, "=") && strings.Contains(begin, "QUOTED-PRINTABLE"); soft {
				line = strings.TrimSuffix(line, "=")
			}
		}
		if b.Len()+len(line) <= maxProperty {
			b.WriteString(line)
		}
	}
	flush()
}

// propertyOf splits a line at the first colon that is not in quotes.
func propertyOf(line string) property {
	quoted := false
	for i := range len(line) {
		switch line[i] {
		case '"':
			quoted = !quoted
		case ':':
			if quoted {
				continue
			}
			name, params, _ := strings.Cut(line[:i], ";")
			group := ""
			if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
				group, name = name[:dot], name[dot+1:]
			}
			if name == "" || strings.ContainsAny(name, " \t") {
				return property{}
			}
			return property{strings.ToUpper(name), strings.ToUpper(group), params, line[i+1:]}
		}
	}
	return property{}
}

// param returns a parameter without its quotes, "" for none.
func (p property) param(name string) string {
	for part := range strings.SplitSeq(p.params, ";") {
		if key, value, ok := strings.Cut(part, "="); ok && strings.EqualFold(key, name) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// plainValue reads the escapes of a value.
var plainValue = strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`, `\:`, ":")

// text returns the value for people.
func (p property) text(c *cut) string {
	value := p.value
	if strings.Contains(strings.ToUpper(p.params), "QUOTED-PRINTABLE") {
		value = c.decodeAs(strings.TrimRight(c.decodeQuoted(value), "\n"), p.param("CHARSET"))
	}
	return strings.TrimSpace(c.normalize(withoutZero(plainValue.Replace(value))))
}
