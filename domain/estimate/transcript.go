package estimate

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// turn is what one person contributes to a transcript or chat.
type turn struct {
	// at is since the beginning, negative for unknown.
	at     time.Duration
	author string
	text   string
}

// cutTranscript cuts WebVTT, SubRip, or lines that begin with the name of a speaker. Turns are joined to
// parts of about partBytes.
func cutTranscript(c *cut) error {
	read := c.speakerTurns
	if isCues(c.text[:min(len(c.text), headBytes)]) || extension(c.path) == ".vtt" || extension(c.path) == ".srt" {
		read = c.cueTurns
	}
	t := &transcript{cut: c, begins: dateInName(c.path, c.zone), last: -1}
	if err := read(t.add); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	if t.part == 0 {
		return unparseable(Transcript, "it has no cue and no speaker")
	}
	return nil
}

// transcript collects turns.
type transcript struct {
	cut    *cut
	begins time.Time
	part   int
	// The part that is being filled.
	b       strings.Builder
	since   time.Duration
	authors map[string]bool
	// last is when the last line of the part began, speaker who speaks in it.
	last    time.Duration
	speaker string
}

// add appends a turn. What the same person goes on to say stays in the line.
func (t *transcript) add(u turn) error {
	if u.text == "" {
		return nil
	}
	if t.b.Len() > 0 && t.b.Len()+len(u.text) > partBytes && (u.author != t.speaker || t.b.Len() > partBytes) {
		if err := t.flush(); err != nil {
			return err
		}
	}
	if t.b.Len() == 0 {
		t.since, t.authors = u.at, map[string]bool{}
	}
	if u.author != "" {
		t.authors[u.author] = true
	}
	if t.b.Len() > 0 && u.author == t.speaker && (u.author != "" || u.at-t.last < time.Minute) {
		t.b.WriteByte(' ')
		t.b.WriteString(u.text)
		return nil
	}
	if t.b.Len() > 0 {
		t.b.WriteByte('\n')
	}
	if u.at >= 0 {
		t.b.WriteString("[" + clockText(u.at) + "] ")
	}
	if u.author != "" {
		t.b.WriteString(u.author + ": ")
	}
	t.b.WriteString(u.text)
	t.last, t.speaker = u.at, u.author
	return nil
}

func (t *transcript) flush() error {
	if t.b.Len() == 0 {
		return nil
	}
	t.part++
	label := t.cut.base
	p := Point{
		ID: t.cut.id("part-" + strconv.Itoa(t.part)), Content: t.b.String(), At: t.begins, Metadata: t.cut.metadata(),
	}
	if t.since > 0 {
		label += " from " + clockText(t.since)
		if !t.begins.IsZero() {
			p.At = t.begins.Add(t.since)
		}
	}
	p.Label = label
	if len(t.authors) == 1 {
		for name := range t.authors {
			p.Identity = name
		}
	}
	t.b.Reset()
	t.speaker = ""
	return t.cut.emit(p)
}

// clockText writes a time since the beginning as h:mm:ss.
func clockText(d time.Duration) string {
	s := int64(d / time.Second)
	two := func(n int64) string { return strconv.FormatInt(n/10, 10) + strconv.FormatInt(n%10, 10) }
	return two(s/3600) + ":" + two(s/60%60) + ":" + two(s%60)
}

// cueTiming is the line that times a cue, of WebVTT with a full stop, of SubRip with a comma.
var cueTiming = regexp.MustCompile(`^(?:(\d{1,4}):)?(\d{2}):(\d{2})[.,]\d{1,3}[ \t]+-->[ \t]+(?:\d{1,4}:)?\d{2}:\d{2}[.,]\d{1,3}`)

// maxTiming is how much of a line is looked at for its form.
const maxTiming = 200

func timingOf(line string) (at time.Duration, ok bool) {
	if !strings.Contains(line[:min(len(line), maxTiming)], "-->") {
		return 0, false
	}
	m := cueTiming.FindStringSubmatch(line[:min(len(line), maxTiming)])
	if m == nil {
		return 0, false
	}
	return sinceBegin(m[1], m[2], m[3]), true
}

func sinceBegin(hours, minutes, seconds string) time.Duration {
	return time.Duration(number(hours))*time.Hour + time.Duration(number(minutes))*time.Minute +
		time.Duration(number(seconds))*time.Second
}

// isCues reports whether a text begins as WebVTT or SubRip.
func isCues(head string) bool {
	if strings.HasPrefix(head, "WEBVTT") {
		return true
	}
	first, rest := firstLine(strings.TrimLeft(head, "\n"))
	second, _ := firstLine(rest)
	_, timed := timingOf(second)
	return timed && strings.Trim(strings.TrimSpace(first), "0123456789") == ""
}

// cueTurns reads WebVTT and SubRip. Lines before the first cue, its numbers, notes and styles are not
// read; a line that the cue before had, as rolling captions repeat it, counts once.
func (c *cut) cueTurns(yield func(turn) error) error {
	inCue, speaker, before := false, "", ""
	at := time.Duration(0)
	n := 0
	for text := c.text; text != ""; {
		var line string
		line, text = c.line(text)
		n++
		if since, ok := timingOf(line); ok {
			at, inCue, speaker = since, true, ""
			continue
		}
		if strings.TrimSpace(line) == "" {
			inCue = false
			continue
		}
		if !inCue {
			if strings.Contains(line[:min(len(line), maxTiming)], "-->") {
				c.remarks.add(Unreadable, "line "+strconv.Itoa(n))
			}
			continue
		}
		who, said := cueLine(line)
		if who != "" {
			speaker = who
		}
		if said == "" || said == before {
			continue
		}
		before = said
		if err := yield(turn{at, speaker, said}); err != nil {
			return err
		}
	}
	return nil
}

// cueLine removes the tags of a line of a cue, and finds its speaker: <v Ana>, or "Ana: ".
func cueLine(line string) (speaker, said string) {
	var b strings.Builder
	for line != "" {
		before, rest, found := strings.Cut(line, "<")
		b.WriteString(before)
		if !found {
			break
		}
		tag, after, closed := strings.Cut(rest, ">")
		if !closed {
			b.WriteString("<" + rest)
			break
		}
		if name, ok := strings.CutPrefix(tag, "v"); ok && speaker == "" {
			if _, name, ok = strings.Cut(name, " "); ok {
				speaker = fitName(name, maxSpeaker)
			}
		}
		line = after
	}
	said = oneLine(unescapeCue.Replace(b.String()))
	if speaker == "" {
		if name, rest, ok := speakerOf(said); ok {
			return name, rest
		}
	}
	return speaker, said
}

var unescapeCue = strings.NewReplacer(
	"&lt;", "<", "&gt;", ">", "&nbsp;", " ", "&lrm;", "", "&rlm;", "", "&amp;", "&", "{\\an8}", "",
)

// maxSpeaker is the longest name of a speaker.
const maxSpeaker = 60

// speakerLine is the beginning of a turn: a time or none, a name, a time or none, a colon.
var speakerLine = regexp.MustCompile(`^(?:[\[(]?(?:(\d{1,2}):)?(\d{1,2}):(\d{2})(?:[.,]\d{1,3})?[\])]?[ \t\-–]*)?` +
	`\*{0,2}(\p{L}[\p{L}\p{M}\d .'’\-]{0,58}?)\*{0,2}` +
	`(?:[ \t]*[\[(](?:(\d{1,2}):)?(\d{1,2}):(\d{2})(?:[.,]\d{1,3})?[\])])?:\*{0,2}(?:[ \t]+|$)(.*)$`)

// speakerOf splits "Ana: text".
func speakerOf(line string) (name, text string, ok bool) {
	m := speakerMatch(line)
	if m == nil {
		return "", "", false
	}
	return m[4], m[8], true
}

// maxBefore is how far a line is looked at for the colon after the name of its speaker.
const maxBefore = 120

// speakerMatch returns the parts of a line that begins with a speaker, nil for another line. The last part
// is the text.
func speakerMatch(line string) []string {
	if strings.IndexByte(line[:min(len(line), maxBefore)], ':') < 0 {
		return nil
	}
	head := line[:min(len(line), 2*maxBefore)]
	m := speakerLine.FindStringSubmatch(strings.ToValidUTF8(head, ""))
	if m == nil || strings.Count(m[4], " ") > 3 {
		return nil
	}
	m[4] = strings.TrimSpace(m[4])
	m[8] = strings.TrimSpace(line[len(head)-len(m[8]):])
	return m
}

// speakerTurns reads lines that begin with a speaker. Other lines go on with the turn before.
func (c *cut) speakerTurns(yield func(turn) error) error {
	current := turn{at: -1}
	var b strings.Builder
	named := 0
	flush := func() error {
		current.text = strings.TrimSpace(b.String())
		b.Reset()
		return yield(current)
	}
	for text := c.text; text != ""; {
		var line string
		line, text = c.line(text)
		m := speakerMatch(strings.TrimSpace(line))
		if m == nil {
			if line = strings.TrimSpace(line); line != "" && named > 0 {
				if b.Len() > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(line)
			}
			continue
		}
		if named++; named > 1 {
			if err := flush(); err != nil {
				return err
			}
		}
		current = turn{at: -1, author: m[4]}
		switch {
		case m[3] != "":
			current.at = sinceBegin(m[1], m[2], m[3])
		case m[7] != "":
			current.at = sinceBegin(m[5], m[6], m[7])
		}
		b.WriteString(m[8])
	}
	if named == 0 {
		return nil
	}
	return flush()
}

// isSpeakers reports whether most lines begin with a speaker, and speakers come again.
func isSpeakers(head string) bool {
	lines, named := 0, 0
	speakers := map[string]int{}
	for line := range strings.Lines(head) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if lines++; lines > 200 {
			break
		}
		if m := speakerMatch(line); m != nil {
			named++
			speakers[m[4]]++
		}
	}
	return named >= 4 && named*2 >= lines && len(speakers) >= 2 && len(speakers)*2 <= named
}
