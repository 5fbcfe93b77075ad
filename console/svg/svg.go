// Package svg draws charts, timelines and lineages for the pages of the console. Colours come from classes alone, since
// the content security policy refuses styles within a page.
package svg

import (
	"embed"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
)

//go:embed *.gohtml
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.gohtml"))

// render executes a template. What it writes was escaped by the template. It fails only if a template is wrong, which a
// test of each of them finds.
func render(name string, data any) template.HTML {
	b := new(strings.Builder)
	if err := templates.ExecuteTemplate(b, name, data); err != nil {
		panic(err)
	}
	return template.HTML(b.String())
}

// written returns a number with at most two decimals.
func written(f float64) string { return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64) }

// percent returns a share of a width: so a drawing is as wide as the page allows, and its text keeps its size.
func percent(share float64) string { return written(share*100) + "%" }

// cut returns as much of a text as fits a width, with an ellipsis for the rest.
func cut(text string, width, fontSize float64) string {
	used, fits := 0.0, 0 // fits is the end of what fits together with an ellipsis
	for i, r := range text {
		if used+fontSize <= width && runeWidth(r) > 0 {
			fits = i
		}
		if used += runeWidth(r) * fontSize; used > width {
			return strings.TrimRightFunc(text[:fits], unicode.IsSpace) + "…"
		}
	}
	return text
}

// runeWidth is about the width of a character in usual fonts, rather too wide than too narrow, in units of their size.
func runeWidth(r rune) float64 {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Cf):
		return 0
	case strings.ContainsRune(" .,:;'|!()[]iIjlftr", r):
		return 0.36
	case strings.ContainsRune("mwMW@%—", r):
		return 0.98
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana), r >= 0x1f000:
		return 1.1
	case unicode.IsUpper(r) || r >= 0x250:
		return 0.74
	}
	return 0.6
}
