package estimate

import (
	"fmt"
	"slices"
)

// RemarkCode names what was left out of a file, or is not certain.
type RemarkCode string

// What a cut remarks.
const (
	// NoTime counts data points without a time: a send gives them that of the import.
	NoTime RemarkCode = "no-time"
	// QuotedText counts messages without the text that they repeat of others.
	QuotedText RemarkCode = "quoted-text"
	// NoWords counts messages and entries that have no words.
	NoWords RemarkCode = "no-words"
	// NotText counts attachments, pictures and outputs that are no text.
	NotText RemarkCode = "not-text"
	// Unreadable counts parts of a file that are not in its form.
	Unreadable RemarkCode = "unreadable"
	// BadBytes counts data points with bytes that are no text in their charset.
	BadBytes RemarkCode = "bad-bytes"
	// GuessedCharset is the charset of a file that names none.
	GuessedCharset RemarkCode = "guessed-charset"
	// NoMetadata counts data points with more metadata than a send takes.
	NoMetadata RemarkCode = "metadata-dropped"
	// Repeated counts data points that equal one that is there.
	Repeated RemarkCode = "repeated"
	// ProgramLines counts lines of a chat that its program wrote.
	ProgramLines RemarkCode = "program-lines"
	// TooDeep counts messages with more parts, or deeper ones, than are read.
	TooDeep RemarkCode = "too-deep"
)

// remarkTexts are what a remark is for people, after its count, of one and of several.
var remarkTexts = map[RemarkCode][2]string{
	NoTime: {
		"data point without a time, which would get the time of the import",
		"data points without a time, which would get the time of the import",
	},
	QuotedText: {
		"message without the text that it quotes of an earlier one", "messages without the text that they quote of earlier ones",
	},
	NoWords: {
		"message or entry without words was left out", "messages or entries without words were left out",
	},
	NotText: {
		"attachment or output that is no text was left out", "attachments or outputs that are no text were left out",
	},
	Unreadable: {"part could not be read and was left out", "parts could not be read and were left out"},
	BadBytes:   {"data point with bytes that are no text (\ufffd)", "data points with bytes that are no text (\ufffd)"},
	NoMetadata: {
		"data point without its metadata, which is too big", "data points without their metadata, which is too big",
	},
	Repeated: {
		"data point was left out: it equals one that is there", "data points were left out: they equal ones that are there",
	},
	ProgramLines: {"line that the program wrote was left out", "lines that the program wrote were left out"},
	TooDeep:      {"message has more parts than are read", "messages have more parts than are read"},
}

// Remark is what was left out of a file, or is not certain.
type Remark struct {
	Code  RemarkCode
	Count int
	// First is the first place: an id of a data point, or a line. It may be "".
	First string
	// Text is all of it for people.
	Text string
}

// remarks are those of one file, one for each code.
type remarks []Remark

// maxFirst bounds the place of a remark.
const maxFirst = 200

// add counts a remark.
func (r *remarks) add(code RemarkCode, first string) {
	for i := range *r {
		if (*r)[i].Code == code {
			(*r)[i].Count++
			return
		}
	}
	*r = append(*r, Remark{Code: code, Count: 1, First: fitName(first, maxFirst)})
}

// list returns the remarks with their texts.
func (r remarks) list() []Remark {
	list := slices.Clone(r)
	for i := range list {
		m := &list[i]
		if m.Text != "" {
			continue
		}
		words := remarkTexts[m.Code]
		m.Text = fmt.Sprintf("%d %s", m.Count, words[min(m.Count, 2)-1])
		if m.First != "" {
			m.Text += "; the first: " + m.First
		}
	}
	return list
}
