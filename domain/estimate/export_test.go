package estimate

import "github.com/annals-project/annals/domain/limit"

// The bounds of nesting.
const (
	MaxJSONDepth = maxJSONDepth
	MaxNesting   = maxNesting
)

// ParseTime and TimeOf read times.
var (
	ParseTime = parseTime
	TimeOf    = timeOf
)

// SetWindow sets the size of the rows that are made at once.
func (p *Plan) SetWindow(bytes int64) { p.window = bytes }

// Use counts bytes that were kept and made before.
func (p *Plan) Use(kept, made int64) {
	p.kept += kept
	p.made += made
}

// FitID and FitName bring an id and a label within their limits.
var (
	FitID   = fitID
	FitName = fitName
)

// IDs makes ids of a file as FitID fits them.
func IDs(path string) func(name string) string {
	i := newIDs(path)
	return i.of
}

// Labels makes labels of two texts as FitName fits them.
func Labels() func(begin, end string) string {
	c := &cut{}
	return func(begin, end string) string { return fitName(c.labelled(begin, end), limit.Label) }
}

// Prefixed is the hash of texts that begin alike.
type Prefixed struct{ prefixed }

// Sum returns the SHA-256 of a text.
func (p *Prefixed) Sum(text string) []byte { return p.sum(text, "") }

// Known returns how many bytes of the next text are hashed already.
func (p *Prefixed) Known() int { return len(p.prefix) }
