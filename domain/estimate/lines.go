package estimate

import "strings"

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
